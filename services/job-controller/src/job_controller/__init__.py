"""PaddleJob: pods, services, config, status and facts."""
