"""Pods wait at a gate until they can reach the others."""
