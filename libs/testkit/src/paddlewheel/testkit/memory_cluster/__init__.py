"""The Cluster port in memory."""

from paddlewheel.testkit.memory_cluster.cluster import Intercept, MemoryCluster, Verb

__all__ = ["Intercept", "MemoryCluster", "Verb"]
