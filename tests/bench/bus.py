"""What the bus costs over bare NATS: publishing, a fact from status change to subscriber, connecting."""

from __future__ import annotations

from tests.bench import identity, latency, publishing
from tests.bench.rows import Row


async def measure() -> list[Row]:
    """One after the other: they would slow each other down."""
    return [*await publishing.measure(), *await latency.measure(), *await identity.measure()]
