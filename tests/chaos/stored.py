"""What really lies in a stream, read with bare nats-py: the judge uses none of our own client."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

_BATCH = 500


@dataclass(frozen=True)
class Stored:
    """One message of a stream."""

    sequence: int
    subject: str
    id: str
    data: bytes
    headers: dict[str, str]


async def read_stream(url: str, stream: str, **options: Any) -> list[Stored]:
    """Everything in it now, oldest first. `options`: further ones of `nats.connect`."""
    client = await nats.connect(url.split(","), **options)
    try:
        return await _read(client.jetstream(timeout=10.0), stream)
    finally:
        await client.close()


async def read_ids(url: str, *streams: str, **options: Any) -> list[str]:
    """Ids of the facts in those streams, with options of `nats.connect`."""
    found = await asyncio.gather(*(read_stream(url, stream, **options) for stream in streams))
    return [stored.id for messages in found for stored in messages]


async def _read(js: JetStreamContext, stream: str) -> list[Stored]:
    wanted = (await js.stream_info(stream)).state.messages
    look = ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=60.0)
    subscription = await js.pull_subscribe("", stream=stream, config=look)
    found: list[Stored] = []
    while len(found) < wanted:
        found += [_stored(msg) for msg in await subscription.fetch(_BATCH, timeout=10.0)]
    await subscription.unsubscribe()
    return found


def _stored(msg: Msg) -> Stored:
    headers = dict(msg.headers or {})
    return Stored(msg.metadata.sequence.stream, msg.subject, headers.get("ce-id", ""), msg.data, headers)
