"""What the bus costs over bare NATS: publishing, and the way of a fact from status change to subscriber."""

from __future__ import annotations

from tests.bench import latency, publishing
from tests.bench.rows import Row


async def measure() -> list[Row]:
    """Both, one after the other: they would slow each other down."""
    return [*await publishing.measure(), *await latency.measure()]
