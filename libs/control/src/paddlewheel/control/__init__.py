"""Keyed queue, backoff, reconcile loop, sharding."""
