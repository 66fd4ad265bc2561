"""Looking at a stream without leaving a trace: the short-lived consumers of watches and readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from nats.js.api import AckPolicy, ConsumerConfig

from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.feed import Feed
from paddlewheel.bus.nats.provision import Provision

BATCH = 256
_INACTIVE = 60.0


@dataclass(frozen=True)
class View:
    """Which messages of a stream to see; `start` holds the consumer's delivery fields."""

    stream: str
    filters: Sequence[str]
    start: Mapping[str, object]


@dataclass(frozen=True)
class Look:
    """An open feed and how many messages lay there when it was opened."""

    feed: Feed
    pending: int


async def open_look(connection: Connection, provision: Provision, views: Sequence[View]) -> Look:
    """Make one consumer per view, feeding one inbox. They vanish when nobody pulls. Raises Retry."""
    consumers, pending = [], 0
    for view in views:
        config = _config(view)
        info = await provision.consumer(view.stream, config)
        consumers.append((view.stream, config.name or ""))
        pending += info.num_pending or 0
    feed = Feed(connection, consumers)
    await feed.open()
    return Look(feed, pending)


def _config(view: View) -> ConsumerConfig:
    config = ConsumerConfig(
        name=f"look-{uuid4().hex}",
        filter_subjects=list(view.filters),
        ack_policy=AckPolicy.NONE,
        inactive_threshold=_INACTIVE,
        mem_storage=True,
        num_replicas=1,
    )
    return config.evolve(**view.start)
