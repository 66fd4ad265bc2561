"""The rules of the service, one in each file."""
