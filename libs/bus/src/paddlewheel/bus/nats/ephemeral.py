"""The source of messages for watches and readers: an ephemeral consumer, or direct gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from nats.js.api import AckPolicy, ConsumerConfig

from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.direct import DirectFeed
from paddlewheel.bus.nats.feed import Feed, open_feed
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.streams import stream_named

BATCH = 256
STORED_MESSAGE_TIMEOUT_SECONDS = 5.0
"""Seconds without a message after which expected stored messages count as removed, by the stream's limits or
by an operator, since they were counted."""
_UNUSED_CONSUMER_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Ephemeral:
    """An open feed, and the number of stored messages to read when it was opened."""

    feed: Feed | DirectFeed
    pending: int


async def open_ephemeral(
    connection: Connection, provision: Provision, stream: str, filters: tuple[str, ...], **start: Any
) -> Ephemeral:
    """Read the subjects `filters` of a stream; `start` holds the delivery fields. Raises Retry. An ephemeral
    consumer is deleted by the server when no client pulls."""
    if provision.reads_directly(stream):
        await provision.ready()
        direct = DirectFeed(connection, await connection.client(), stream_named(stream), filters)
        await direct.open(start["deliver_policy"], start.get("opt_start_time"))
        return Ephemeral(direct, direct.pending)
    config = _config(filters, start)
    info = await provision.consumer(stream, config)
    feed = await open_feed(connection, stream, config.name or "")
    return Ephemeral(feed, info.num_pending or 0)


async def discard_ephemeral(connection: Connection, feed: Feed | DirectFeed) -> None:
    """Close the feed and delete its consumer, if possible: otherwise the server deletes it later."""
    await feed.close()
    if isinstance(feed, Feed):
        await connection.send(f"$JS.API.CONSUMER.DELETE.{feed.stream}.{feed.consumer}", b"")


def _config(filters: tuple[str, ...], start: Mapping[str, object]) -> ConsumerConfig:
    config = ConsumerConfig(
        name=f"look-{uuid4().hex}",
        filter_subjects=list(filters),
        ack_policy=AckPolicy.NONE,
        inactive_threshold=_UNUSED_CONSUMER_TIMEOUT_SECONDS,
        mem_storage=True,
        num_replicas=1,
    )
    return config.evolve(**start)
