"""Making the server have the declared streams and consumers, and saying loudly what differs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from enum import Enum

import structlog
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ConsumerInfo, StreamConfig
from nats.js.errors import APIError, NotFoundError

from paddlewheel.bus.nats.errors import STREAM_NAME_IN_USE
from paddlewheel.bus.nats.link import Link
from paddlewheel.bus.streams import StreamSpec, find_drift

log = structlog.get_logger()


class Provision:
    """Ensures streams once per connection, and again after `forget`."""

    def __init__(self, link: Link, specs: Sequence[StreamSpec], replicas: int) -> None:
        self._link = link
        self._specs = [replace(spec, num_replicas=replicas) for spec in specs]
        self._done_for = 0
        self._lock = asyncio.Lock()

    async def ready(self) -> JetStreamContext:
        """JetStream with all streams in place. Raises Retry."""
        js = await self._link.jetstream()
        if self._done_for != self._link.generation:
            async with self._lock:
                await self._ensure_all(js)
        return js

    def forget(self) -> None:
        """A stream turned out to be missing: look again."""
        self._done_for = 0

    async def consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """Create or update a named consumer. Raises Retry."""
        js = await self.ready()
        async with self._link.calling(f"consumer {config.name} of {stream}"):
            found = await self._find_consumer(js, stream, config.name or "")
            if found is None:
                log.info("bus consumer created", stream=stream, consumer=config.name)
                return await js.add_consumer(stream, config)
            return await _updated(js, stream, found, config)

    async def _find_consumer(self, js: JetStreamContext, stream: str, name: str) -> ConsumerInfo | None:
        try:
            found: ConsumerInfo = await js.consumer_info(stream, name)
        except NotFoundError:
            # It may be the stream that is missing; ensure it before the consumer is made.
            self.forget()
            await self.ready()
            return None
        return found

    async def _ensure_all(self, js: JetStreamContext) -> None:
        generation = self._link.generation
        if self._done_for == generation:
            return
        for spec in self._specs:
            async with self._link.calling(f"stream {spec.name}"):
                await _ensure(js, spec)
        self._done_for = generation


async def _ensure(js: JetStreamContext, spec: StreamSpec) -> None:
    try:
        info = await js.stream_info(spec.name)
    except NotFoundError:
        await _create(js, spec)
        return
    await _mend(js, spec, info.config)


async def _create(js: JetStreamContext, spec: StreamSpec) -> None:
    try:
        await js.add_stream(_config(spec))
    except APIError as error:
        # Another service was faster; its declaration may be older than ours.
        if error.err_code != STREAM_NAME_IN_USE:
            raise
        await _mend(js, spec, (await js.stream_info(spec.name)).config)
        return
    log.info("bus stream created", stream=spec.name)


async def _mend(js: JetStreamContext, spec: StreamSpec, found: StreamConfig) -> None:
    drift = find_drift(_plain(asdict(spec)), _plain(vars(found)))
    if drift.fixed:
        log.error(
            "bus stream differs and cannot be changed in place", stream=spec.name, drift=dict(drift.fixed)
        )
    if drift.mendable:
        log.warning(
            "bus stream brought back to its declaration", stream=spec.name, drift=dict(drift.mendable)
        )
        kept = {name: pair[1] for name, pair in drift.fixed.items()}
        await js.update_stream(_config(spec).evolve(**kept))


def _config(spec: StreamSpec) -> StreamConfig:
    return StreamConfig(**{**asdict(spec), "subjects": list(spec.subjects)})


def _plain(fields: dict[str, object]) -> dict[str, object]:
    """Comparable values: enums by value, lists as tuples, no limit as 0."""
    return {name: _plain_value(name, value) for name, value in fields.items()}


def _plain_value(name: str, value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list):
        return tuple(value)
    if name.startswith("max_") and value in (None, 0):
        return 0.0
    return False if value is None else value


async def _updated(
    js: JetStreamContext, stream: str, found: ConsumerInfo, wanted: ConsumerConfig
) -> ConsumerInfo:
    same = ("filter_subjects", "filter_subject", "ack_wait", "max_ack_pending", "inactive_threshold")
    differing = [
        name for name in same if (getattr(found.config, name) or None) != (getattr(wanted, name) or None)
    ]
    if not differing:
        return found
    log.warning("bus consumer brought back to its declaration", consumer=wanted.name, fields=differing)
    # Where delivery starts was decided at creation and cannot be changed.
    start = ("deliver_policy", "opt_start_seq", "opt_start_time")
    return await js.add_consumer(
        stream, wanted.evolve(**{name: getattr(found.config, name) for name in start})
    )
