"""The state of the bus, for operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from paddlewheel.bus.admin.mirrors import MirrorStatus
from paddlewheel.bus.streams import REPLAYS


@dataclass(frozen=True)
class StreamStatus:
    """One stream as it is. Sizes in bytes, `max_bytes` 0 = no limit. `consumers` counts all, including the
    short-lived ones of viewers; `drift` maps each field of our streams that differs to (declared, found)."""

    name: str
    messages: int
    bytes: int
    max_bytes: int
    consumers: int
    replicas: int
    created: datetime
    drift: Mapping[str, tuple[object, object]]


@dataclass(frozen=True)
class DurableStatus:
    """One durable consumer: messages not delivered yet, delivered and not acknowledged, redelivered.

    `pulls` counts the requests that wait for a message: 0 = no process asks for one, or each is busy.
    """

    stream: str
    name: str
    pending: int
    ack_pending: int
    redelivered: int
    pulls: int


@dataclass(frozen=True)
class BusStatus:
    """Everything at one moment; `missing` names streams of ours that do not exist."""

    streams: tuple[StreamStatus, ...]
    missing: tuple[str, ...]
    durables: tuple[DurableStatus, ...]
    warnings: tuple[str, ...]
    """Reasons why acknowledged messages may be lost, each with what to do."""
    mirrors: tuple[MirrorStatus, ...] = ()
    """Teams' copies of streams of facts."""
    others: tuple[StreamStatus, ...] = ()
    """Streams of facts that are not ours, such as those of declared services."""


def unread_replays(status: BusStatus) -> tuple[DurableStatus, ...]:
    """Consumers for which replayed dead letters wait and that no process runs now."""
    return tuple(
        d
        for d in status.durables
        if d.stream == REPLAYS.name and d.pending and not d.ack_pending and not d.pulls
    )


class Inspector(Protocol):
    """Reads only: creates, changes and consumes nothing."""

    async def status(self) -> BusStatus:
        """Raises Retry while the bus is unreachable."""
        ...
