"""PaddleService: pod, status and facts."""
