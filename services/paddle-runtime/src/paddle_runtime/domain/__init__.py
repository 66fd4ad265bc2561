"""The rules of requests, models and their files; no I/O."""
