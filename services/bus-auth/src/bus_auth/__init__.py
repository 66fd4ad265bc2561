"""Authenticates and authorizes clients of the bus, by their Kubernetes tokens and by RBAC."""
