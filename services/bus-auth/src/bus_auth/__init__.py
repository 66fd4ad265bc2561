"""Lets clients into the bus: who they are by Kubernetes, and what they may do by its RBAC."""
