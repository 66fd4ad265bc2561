"""The parts that all controllers share: passes, outbox, rebuild, sharding, serving and draining."""
