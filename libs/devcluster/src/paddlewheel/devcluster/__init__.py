"""A real Kubernetes on one machine.

Start with `paddlewheel.devcluster.cluster`. This file imports nothing, so that a cluster's process 1
(`paddlewheel.devcluster.supervisor`) needs only the standard library.
"""
