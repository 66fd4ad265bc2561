"""The NATS JetStream adapter; the only code of this project that knows NATS."""

from paddlewheel.bus.nats.bus import NatsBus

__all__ = ["NatsBus"]
