"""The cache data plane: one agent per node and partition, one master role per run."""
