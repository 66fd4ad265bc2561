"""A key-value bucket on JetStream, laid out as all NATS clients do: `KV_<bucket>`, `$KV.<bucket>.<key>`.

Only the purge of a key fails here: its header would allow agents to remove keys that they may not write.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace

from nats.aio.msg import Msg
from nats.js.api import DeliverPolicy
from nats.js.errors import APIError

from paddlewheel.bus.keys import check_key, check_pattern
from paddlewheel.bus.markers import DELETED, EXPECTED, OPERATION
from paddlewheel.bus.nats import ephemeral
from paddlewheel.bus.nats.api import get_message
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.consume import REOPEN_INTERVAL_SECONDS
from paddlewheel.bus.nats.ephemeral import BATCH, Ephemeral, open_ephemeral
from paddlewheel.bus.nats.errors import STREAM_MISSING, WRONG_LAST_SEQUENCE, FeedLostError
from paddlewheel.bus.nats.provision import Provision
from paddlewheel.bus.nats.publish import StreamPublisher
from paddlewheel.bus.ports import Entry, RawMessage
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Retry, Unavailable
from paddlewheel.core.library_logging import LibraryLogger

_MARKER = "Nats-Marker-Reason"

log = LibraryLogger(__name__)


class NatsKeyValue:
    """KeyValue over one bucket. A write that raises Retry may have happened: read before writing again."""

    def __init__(
        self,
        bucket: str,
        connection: Connection,
        provision: Provision,
        publisher: StreamPublisher,
        clock: Clock,
    ) -> None:
        self._bucket = bucket
        self._stream = f"KV_{bucket}"
        self._prefix = f"$KV.{bucket}."
        self._connection = connection
        self._provision = provision
        self._publisher = publisher
        self._clock = clock

    async def get(self, key: str) -> Entry:
        found = await self._last(check_key(key))
        if found is None or found.value is None:
            raise NotFound(f"{self._bucket}: {key}")
        return found

    async def create(self, key: str, value: bytes) -> int:
        try:
            return await self._write_at(check_key(key), value, 0)
        except Conflict:
            found = await self._last(key)
        if found is not None and found.value is not None:
            raise AlreadyExists(f"{self._bucket}: {key}")
        try:
            # The stored message is the marker of a deleted key.
            return await self._write_at(key, value, found.revision if found else 0)
        except Conflict:
            raise AlreadyExists(f"{self._bucket}: {key}") from None

    async def put(self, key: str, value: bytes) -> int:
        return (await self._publisher.publish(RawMessage(self._prefix + check_key(key), value))).sequence

    async def update(self, key: str, value: bytes, revision: int) -> int:
        return await self._write_at(check_key(key), value, revision)

    async def delete(self, key: str) -> None:
        found = await self._last(check_key(key))
        if found is not None and found.value is not None:
            await self._publisher.publish(RawMessage(self._prefix + key, b"", DELETED))

    async def entries(self, pattern: str) -> list[Entry]:
        consumer = await self._open(check_pattern(pattern))
        listing = Listing(set(), consumer.pending, self._prefix)
        try:
            while not listing.complete:
                await _read_on(consumer, listing)
        except FeedLostError as error:
            raise Unavailable("BusUnreachable", f"{self._bucket}: {error}") from error
        finally:
            await consumer.feed.close()
        return [entry for entry in listing.take() if entry is not None and entry.value is not None]

    async def watch(self, pattern: str) -> AsyncGenerator[Entry | None, None]:
        known: set[str] = set()
        consumer: Ephemeral | None = None
        first = True
        check_pattern(pattern)
        try:
            while True:
                try:
                    if consumer is None:
                        consumer = await self._open(pattern)
                        listing = Listing(known, consumer.pending, self._prefix)
                    else:
                        await _read_on(consumer, listing)
                except (FeedLostError, Retry) as error:
                    log.warning("watch interrupted", bucket=self._bucket, pattern=pattern, why=str(error))
                    await _close(consumer)
                    consumer = None
                    await self._clock.sleep(REOPEN_INTERVAL_SECONDS)
                    continue
                for entry in listing.take():
                    if entry is not None or first:
                        first = first and entry is not None
                        yield entry
        finally:
            await _close(consumer)

    async def _open(self, pattern: str) -> Ephemeral:
        return await open_ephemeral(
            self._connection,
            self._provision,
            self._stream,
            (self._prefix + pattern,),
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        )

    async def _last(self, key: str) -> Entry | None:
        """The last message of a key, from the stream's leader: a follower may lag behind our own writes."""
        await self._provision.ready()
        try:
            return await self._read(key)
        except Retry as error:
            if error.reason != STREAM_MISSING:
                raise
        await self._provision.ready()
        return await self._read(key)

    async def _read(self, key: str) -> Entry | None:
        found = await get_message(self._connection, self._stream, {"last_by_subj": self._prefix + key})
        if found is None:
            return None
        value = None if _is_deletion(found.message.headers) else found.message.data
        return Entry(key, value, found.sequence)

    async def _write_at(self, key: str, value: bytes, revision: int) -> int:
        message = RawMessage(self._prefix + key, value, {EXPECTED: str(revision)})
        try:
            return (await self._publisher.publish(message)).sequence
        except Retry as error:
            cause = error.__cause__
            if isinstance(cause, APIError) and cause.err_code in WRONG_LAST_SEQUENCE:
                raise Conflict(f"{self._bucket}: {key} is not at revision {revision}") from error
            raise


class Listing:
    """Turns a watch's messages into entries: first all that are stored, then a None, then changes."""

    def __init__(self, known: set[str], pending: int, prefix: str) -> None:
        self._known = known
        self._left = pending
        self._prefix = prefix
        self._seen: set[str] = set()
        self._out: list[Entry | None] = []
        self.complete = False
        if pending == 0:
            self._finish()

    def read(self, messages: list[Msg]) -> None:
        """Add delivered messages."""
        for msg in messages:
            self._add(_delivered(self._prefix, msg))
            self._left -= 1
            if not self.complete and (self._left <= 0 or msg.metadata.num_pending == 0):
                self._finish()

    def take(self) -> Iterator[Entry | None]:
        """Entries since the last call."""
        out, self._out = self._out, []
        return iter(out)

    def _add(self, entry: Entry) -> None:
        entry = replace(entry, is_stored=not self.complete)
        self._seen.add(entry.key)
        if entry.value is not None:
            self._known.add(entry.key)
            self._out.append(entry)
        elif entry.key in self._known or self.complete:
            self._known.discard(entry.key)
            self._out.append(entry)

    def _finish(self) -> None:
        # Keys that were reported before a loss and are now missing were deleted.
        for key in sorted(self._known - self._seen):
            self._known.discard(key)
            self._out.append(Entry(key, None, 0))
        self._seen.clear()
        self._out.append(None)
        self.complete = True


def _delivered(prefix: str, msg: Msg) -> Entry:
    value = None if _is_deletion(msg.headers or {}) else msg.data
    return Entry(msg.subject.removeprefix(prefix), value, msg.metadata.sequence.stream)


def _is_deletion(headers: Mapping[str, str]) -> bool:
    return headers.get(OPERATION, "") in ("DEL", "PURGE") or _MARKER in headers


async def _read_on(consumer: Ephemeral, listing: Listing) -> None:
    """Raises FeedLostError or Retry."""
    try:
        async with asyncio.timeout(None if listing.complete else ephemeral.STORED_MESSAGE_TIMEOUT_SECONDS):
            listing.read(await consumer.feed.fetch(BATCH))
    except TimeoutError:
        raise FeedLostError("stored entries vanished before they were delivered") from None


async def _close(consumer: Ephemeral | None) -> None:
    if consumer is not None:
        await consumer.feed.close()
