"""Containers that kubelets restart in place count against `backoffLimit`."""
