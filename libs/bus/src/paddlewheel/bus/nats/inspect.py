"""The state of the bus as JetStream reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo, StreamInfo
from nats.js.errors import NotFoundError

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.durability import judge_durability
from paddlewheel.bus.admin.inspect import BusStatus, DurableStatus, StreamStatus
from paddlewheel.bus.admin.services import PREFIX
from paddlewheel.bus.admin.teams import fed_by
from paddlewheel.bus.nats.api import ask_api
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.mirrors import mirror_status
from paddlewheel.bus.nats.monitor import ask_monitors
from paddlewheel.bus.nats.shape import facts_of
from paddlewheel.bus.streams import Drift, StreamSpec

_DURABLE_MIN_TIMEOUT_SECONDS = 86400.0
"""A named consumer that survives this long without use counts as a durable, not as one of a viewer."""
_NO_DRIFT = Drift({}, {})


class NatsInspector:
    """Inspector over the JetStream API."""

    def __init__(self, connection: Connection, specs: Sequence[StreamSpec], access: Access) -> None:
        self._connection = connection
        self._access = access
        self._specs = [replace(spec, num_replicas=access.replicas) for spec in specs]

    async def status(self) -> BusStatus:
        js = await self._connection.jetstream()
        infos = {spec.name: await self._stream(js, spec.name) for spec in self._specs}
        there = [(spec, info) for spec in self._specs if (info := infos[spec.name]) is not None]
        facts = {spec.name: facts_of(spec, info) for spec, info in there}
        others = await self._others(js)
        names = [*(spec.name for spec, _ in there), *(other.name for other in others)]
        consumers = [found for name in names for found in await self._durables(js, name)]
        fed = [(each, fed_by(each.stream_name, each.name, each.config.deliver_subject)) for each in consumers]
        verdict = judge_durability(self._access, facts, await ask_monitors(self._access.monitor_url))
        return BusStatus(
            streams=tuple(_stream_status(info, facts[spec.name].drift) for spec, info in there),
            missing=tuple(name for name, info in infos.items() if info is None),
            durables=tuple(_durable_status(each) for each, team in fed if team is None),
            warnings=verdict.warnings,
            mirrors=tuple(
                [await mirror_status(self._connection, team, each.stream_name) for each, team in fed if team]
            ),
            others=others,
        )

    async def _others(self, js: JetStreamContext) -> tuple[StreamStatus, ...]:
        """Streams with the prefix of our names that are not declared here."""
        known = {spec.name for spec in self._specs}
        names: list[str] = []
        while True:
            body = {"offset": len(names)}
            page = (await ask_api(self._connection, "STREAM.NAMES", body) or {}).get("streams")
            if not page:
                break
            names += page
        theirs = sorted(name for name in names if name.startswith(PREFIX) and name not in known)
        infos = [await self._stream(js, name) for name in theirs]
        return tuple(_stream_status(info) for info in infos if info is not None)

    async def _stream(self, js: JetStreamContext, name: str) -> StreamInfo | None:
        async with self._connection.calling(f"stream {name}"):
            try:
                found: StreamInfo = await js.stream_info(name)
            except NotFoundError:
                return None
            return found

    async def _durables(self, js: JetStreamContext, stream: str) -> list[ConsumerInfo]:
        found: list[ConsumerInfo] = []
        while True:
            async with self._connection.calling(f"consumers of {stream}"):
                page = await js.consumers_info(stream, offset=len(found))
            if not page:
                return [info for info in found if _is_durable(info)]
            found += page


def _stream_status(info: StreamInfo, drift: Drift = _NO_DRIFT) -> StreamStatus:
    return StreamStatus(
        name=info.config.name or "",
        messages=info.state.messages,
        bytes=info.state.bytes,
        max_bytes=max(0, info.config.max_bytes or 0),
        consumers=info.state.consumer_count,
        replicas=info.config.num_replicas or 1,
        created=info.created or datetime.fromtimestamp(0, UTC),
        drift={**drift.correctable, **drift.fixed},
    )


def _is_durable(info: ConsumerInfo) -> bool:
    """Whether it is no consumer of a viewer or of a single run; the server soon deletes those when unused."""
    kept = info.config.inactive_threshold
    return bool(info.config.durable_name) and (not kept or kept >= _DURABLE_MIN_TIMEOUT_SECONDS)


def _durable_status(info: ConsumerInfo) -> DurableStatus:
    return DurableStatus(
        stream=info.stream_name,
        name=info.name,
        pending=info.num_pending or 0,
        ack_pending=info.num_ack_pending or 0,
        redelivered=info.num_redelivered or 0,
        pulls=info.num_waiting or 0,
    )
