"""The whole bus in memory, with the semantics of the NATS adapter; for unit tests of services."""

from paddlewheel.testkit.memory_bus.bus import MemoryBus

__all__ = ["MemoryBus"]
