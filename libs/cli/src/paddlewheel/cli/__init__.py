"""The paddlewheel command and the Python SDK."""
