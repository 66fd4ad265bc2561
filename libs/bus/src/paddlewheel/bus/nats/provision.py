"""Ensures the declared streams and durables, or waits for them, and checks the server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Sequence
from dataclasses import replace

from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ConsumerInfo
from nats.js.errors import NotFoundError

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.durability import ServerFacts, StreamFacts, Verdict, find_loaded, judge_durability
from paddlewheel.bus.admin.permissions import FACTS, Declared
from paddlewheel.bus.nats import connection as timing
from paddlewheel.bus.nats.api import ask_api
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.durable import durable_config
from paddlewheel.bus.nats.errors import CONSUMER_EXISTS, STORAGE_TOO_SMALL, STREAM_MISSING, STREAM_NOT_FOUND
from paddlewheel.bus.nats.monitor import ask_monitors
from paddlewheel.bus.nats.shape import ensure, facts_of
from paddlewheel.bus.ports import OtherSelection, Reading
from paddlewheel.bus.streams import Limits, enlarged, stream_named, streams_under
from paddlewheel.core.errors import Retry, Unavailable
from paddlewheel.core.library_logging import LibraryLogger

_REFUSED_INTERVAL_SECONDS = 10.0
"""Seconds until a server that is unsafe or too small is checked again."""

_MONITOR_INTERVAL_SECONDS = 30.0
"""Seconds between questions to the servers' monitors. A server may have restarted with other settings."""

_NEVER = -1

CONSUMER_MISSING = "ConsumerMissing"
"""Reason of the Retry when a service's durable does not exist yet."""
FIX = "bus-installer makes it; on a server of your own, `paddlewheel bus install`"

SELECTION = "paddlewheel.selection"
SELECTION_KEY = "paddlewheel.selection-key"
"""Keys in a consumer's metadata: the selection that it reads, in words, and in the form that is compared."""

log = LibraryLogger(__name__)


class Provision:
    """Ensures streams at the start and when one is missing, as `Access.streams` requires.

    A lost connection alone triggers no check: in a cluster without a leader a check takes long, and most
    streams are unchanged.
    """

    def __init__(self, connection: Connection, declared: Declared, access: Access) -> None:
        self._connection = connection
        self._access = access
        self._specs = [
            replace(enlarged(spec, access.limits.get(spec.name, Limits())), num_replicas=access.replicas)
            for spec in declared.streams
        ]
        self._durables = declared.durables
        self._done = False
        self._checked_at = _NEVER
        self._refused_until = 0.0
        self._verdict = Verdict()
        self._judged: dict[str, StreamFacts] = {}
        self._asked_again_at = math.inf
        self._no_room: dict[str, str] = {}
        self._missing: frozenset[str] = frozenset()
        self._room_asked_at = 0.0
        self._missing_durables: set[str] = set()
        self.lags: dict[str, int] = {}
        """Unacknowledged messages of each durable, at the installer's last check."""
        self.loaded: dict[str, bool] = {}
        """Whether each server of the chart has loaded its configuration, by its last report."""
        self._lock = asyncio.Lock()
        connection.on_missing(self.forget)

    async def ready(self) -> JetStreamContext:
        """JetStream with all streams in place that the server has room for.

        Raises:
            Retry: the streams do not exist after `CALL_TIMEOUT_SECONDS`; `UnsafeBus` when profile production
                finds the server unsafe.
        """
        js = await self._connection.jetstream()
        if not self._done:
            await self._within_time(js)
        return js

    async def check(self) -> None:
        """Return if all streams on disk were found since the connection was last lost. Raises Retry.

        A restarted server loses the streams in memory. A service needs them for lossy facts only, and its
        clients must reach it without them.
        """
        js = await self._connection.jetstream()
        if not self._is_current or self._lacks_streams:
            await self._within_time(js)
        await self._ask_servers_again()
        if self._no_room:
            raise Retry(STORAGE_TOO_SMALL, "; ".join(self._no_room.values()))
        if lost := sorted(self._missing - {spec.name for spec in self._specs if spec.storage == "memory"}):
            raise Retry(STREAM_MISSING, f"no stream {', '.join(lost)}: {FIX}")
        if self._missing_durables:
            names = ", ".join(sorted(self._missing_durables))
            raise Retry(CONSUMER_MISSING, f"no consumer {names}: {FIX}")

    @property
    def is_done(self) -> bool:
        """Whether the last check found all streams that the server has room for; asks no server."""
        return self._done

    def reads_directly(self, stream: str) -> bool:
        """Whether the stream is read without a consumer."""
        return self._access.reads == "directly" and bool(stream_named(stream).live)

    def why_missing(self, stream: str) -> str:
        """The end of an error message: what to do, or why the stream does not exist. "" when that is not
        known."""
        if stream in self._missing:
            return f": {FIX}"
        return f": {self._no_room[stream]}" if stream in self._no_room else ""

    def forget(self) -> None:
        """Have the next call check all streams, because one is missing."""
        self._done = False

    async def consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """Create or update a named consumer. Raises Retry, or OtherSelection."""
        js = await self.ready()
        try:
            return await self._ensure_consumer(js, stream, config)
        except Retry as error:
            if error.reason != STREAM_MISSING:
                raise
        # The stream was lost while we were connected.
        return await self._ensure_consumer(await self.ready(), stream, config)

    async def _ensure_consumer(
        self, js: JetStreamContext, stream: str, config: ConsumerConfig
    ) -> ConsumerInfo:
        async with self._connection.calling(f"consumer {config.name} of {stream}"):
            found = await _consumer_info(js, stream, config.name or "")
            if found is None and (created := await self._create_consumer(stream, config)):
                return created
            # None = another process has created it.
            found = found or await js.consumer_info(stream, config.name or "")
            key = (config.metadata or {}).get(SELECTION_KEY, "")
            _check_selection(found, key, config.filter_subjects or ())
            return await _updated(js, stream, found, config)

    async def durable(self, stream: str, config: ConsumerConfig) -> None:
        """Ensure a service's durable consumer: make it if this role may, else require that it exists.

        Raises:
            Retry: `ConsumerMissing`; `check` then fails, too, until the consumer is found.
        """
        name = config.name or ""
        if self._access.streams == "make":
            await self.consumer(stream, config)
        elif await self.find(stream, name) is None:
            self._missing_durables.add(name)
            raise Retry(CONSUMER_MISSING, f"no consumer {name} of {stream}: {FIX}")
        self._missing_durables.discard(name)

    async def check_selection(self, reading: Reading) -> None:
        """Raises OtherSelection if a consumer of that name has another selection; or Retry."""
        filters = streams_under(reading.subjects)
        for stream in FACTS:
            if found := await self.find(stream.name, reading.durable):
                _check_selection(found, reading.selection_key, filters.get(stream.name, ()))

    async def find(self, stream: str, name: str) -> ConsumerInfo | None:
        """A named consumer; None when it does not exist. Raises Retry."""
        js = await self.ready()
        async with self._connection.calling(f"consumer {name} of {stream}"):
            return await self._find_consumer(js, stream, name)

    async def _create_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo | None:
        """Create a consumer; None if a different one exists, which `add_consumer` would replace."""
        request = {"stream_name": stream, "config": config.as_dict(), "action": "create"}
        call = f"CONSUMER.CREATE.{stream}.{config.name}"
        answer = await ask_api(self._connection, call, request, absent=CONSUMER_EXISTS)
        if answer is None:
            return None
        log.info("bus consumer created", stream=stream, consumer=config.name)
        created: ConsumerInfo = ConsumerInfo.from_response(answer)
        return created

    async def _find_consumer(self, js: JetStreamContext, stream: str, name: str) -> ConsumerInfo | None:
        try:
            return await _consumer_info(js, stream, name)
        except NotFoundError:
            self.forget()
            await self.ready()
            return None

    @property
    def _lacks_streams(self) -> bool:
        return bool(self._no_room or self._missing)

    @property
    def _is_current(self) -> bool:
        return self._done and self._checked_at == self._connection.generation

    async def _within_time(self, js: JetStreamContext) -> None:
        try:
            async with asyncio.timeout(timing.CALL_TIMEOUT_SECONDS):
                await self._ensure_once(js)
        except TimeoutError:
            raise Unavailable(
                "BusUnreachable", f"the streams do not exist in time{self._connection.trouble}"
            ) from None

    async def _ensure_once(self, js: JetStreamContext) -> None:
        """One caller checks, the others wait for its result."""
        async with self._lock:
            if self._is_current and not self._lacks_streams:
                return
            if self._now() < self._refused_until:
                raise self._refusal()
            if self._was_without_room:
                self._done = True
            else:
                await self._ensure_all(js)

    async def _ensure_all(self, js: JetStreamContext) -> None:
        generation = self._connection.generation
        if self._access.streams == "make":
            await self._judge(self._ensure_each(js))
            await self._ensure_durables(js)
        elif self._access.streams == "check":
            await self._judge(self._find_each(js))
        self._done, self._checked_at = True, generation

    async def _ensure_each(self, js: JetStreamContext) -> dict[str, StreamFacts]:
        """Ensure all streams. One that the server has no room for does not block the others. Raises Retry."""
        found, no_room = {}, {}
        for spec in self._specs:
            try:
                async with self._connection.calling(f"stream {spec.name}"):
                    found[spec.name] = await ensure(js, spec)
            except Retry as error:
                if error.reason != STORAGE_TOO_SMALL:
                    raise
                no_room[spec.name] = error.message
        if no_room and no_room != self._no_room:
            log.error("bus streams cannot be created", why=tuple(no_room.values()))
        self._no_room, self._room_asked_at = no_room, self._now()
        return found

    async def _ensure_durables(self, js: JetStreamContext) -> None:
        """Make the durables of all services, except on streams that the server has no room for."""
        names = {spec.name for spec in self._specs} - set(self._no_room)
        for each in self._durables:
            if each.stream in names:
                info = await self._ensure_consumer(js, each.stream, durable_config(each))
                self.lags[each.durable] = (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def _find_each(self, js: JetStreamContext) -> dict[str, StreamFacts]:
        """Find all streams. A missing one does not block the others. Raises Retry when all are missing."""
        found, missing = {}, set()
        for spec in self._specs:
            async with self._connection.calling(f"stream {spec.name}"):
                try:
                    found[spec.name] = facts_of(spec, await js.stream_info(spec.name))
                except NotFoundError:
                    missing.add(spec.name)
        self._missing = frozenset(missing)
        if self._specs and not found:
            raise Retry(STREAM_MISSING, f"no stream {', '.join(sorted(missing))}: {FIX}")
        return found

    @property
    def _was_without_room(self) -> bool:
        """Whether a recent check over this connection found no room for a stream."""
        is_recent = self._now() < self._room_asked_at + _REFUSED_INTERVAL_SECONDS
        return bool(self._no_room) and is_recent and self._checked_at == self._connection.generation

    async def _judge(self, streams: Awaitable[dict[str, StreamFacts]]) -> None:
        """Check streams and servers concurrently: an unreachable monitor delays nothing."""
        self._judged, servers = await asyncio.gather(streams, ask_monitors(self._access.monitor_url))
        self._judge_servers(servers)

    async def _ask_servers_again(self) -> None:
        """Check the servers again: one may have restarted with other settings. Raises Retry."""
        if self._now() >= self._asked_again_at:
            self._asked_again_at = self._now() + _MONITOR_INTERVAL_SECONDS
            self._judge_servers(await ask_monitors(self._access.monitor_url))

    def _judge_servers(self, servers: Sequence[ServerFacts]) -> None:
        """Log the faults of a server once; in profile production, raise Retry for them."""
        self._asked_again_at = self._now() + _MONITOR_INTERVAL_SECONDS
        self.loaded = find_loaded(self.loaded, servers)
        verdict = judge_durability(self._access, self._judged, servers)
        is_news, self._verdict = verdict != self._verdict, verdict
        if self._access.profile == "production" and verdict.faults:
            self._done, self._refused_until = False, self._now() + _REFUSED_INTERVAL_SECONDS
            if is_news:
                log.error("bus refused: acknowledged messages may be lost", faults=verdict.faults)
            raise self._refusal()
        if is_news and (reasons := self._worth_logging(verdict)):
            log.warning("bus may lose acknowledged messages when its server crashes", why=reasons)

    def _refusal(self) -> Retry:
        return Retry(
            "UnsafeBus", f"{'; '.join(self._verdict.faults)} (nats_profile=production requires this)"
        )

    def _worth_logging(self, verdict: Verdict) -> tuple[str, ...]:
        """The reasons to log. In development, an unknown durability is not logged."""
        return verdict.warnings if self._access.profile == "production" else verdict.faults

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _check_selection(found: ConsumerInfo, key: str, filters: Sequence[str]) -> None:
    """Raises OtherSelection when a consumer has another selection: its position would skip events.

    A consumer without a stored key has the same selection if it has the same filters.
    """
    kept = found.config.metadata or {}
    own = found.config.filter_subjects or [found.config.filter_subject or ">"]
    is_same = kept[SELECTION_KEY] == key if SELECTION_KEY in kept else set(own) == set(filters)
    if key and not is_same:
        raise OtherSelection(found.name, kept.get(SELECTION) or ", ".join(own))


async def _consumer_info(js: JetStreamContext, stream: str, name: str) -> ConsumerInfo | None:
    """Raises nats-py's error when the stream itself does not exist."""
    try:
        found: ConsumerInfo = await js.consumer_info(stream, name)
    except NotFoundError as error:
        if error.err_code == STREAM_NOT_FOUND:
            raise
        return None
    return found


async def _updated(
    js: JetStreamContext, stream: str, found: ConsumerInfo, wanted: ConsumerConfig
) -> ConsumerInfo:
    same = ("filter_subjects", "filter_subject", "ack_wait", "max_ack_pending", "inactive_threshold")
    differing = [
        name for name in same if (getattr(found.config, name) or None) != (getattr(wanted, name) or None)
    ]
    # The server adds keys of its own.
    if not (wanted.metadata or {}).items() <= (found.config.metadata or {}).items():
        differing.append("metadata")
    if not differing:
        return found
    log.info("bus consumer updated", consumer=wanted.name, fields=differing)
    # The start of the delivery cannot be changed after the creation.
    start = ("deliver_policy", "opt_start_seq", "opt_start_time")
    return await js.add_consumer(
        stream, wanted.evolve(**{name: getattr(found.config, name) for name in start})
    )
