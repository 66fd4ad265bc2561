"""Reading a stream without a consumer: what is stored in batches, and a signal when there is more.

Whoever may create a consumer has the server publish wherever it likes (docs/decisions/0027), so services and
agents create none. A batch of direct gets is the truth; the stream republishes the headers of each message
once it is stored (`StreamSpec.live`), which says that there is something to get, and at which sequence.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import DeliverPolicy
from nats.js.errors import APIError
from pydantic import TypeAdapter

from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.connection import TIMEOUT, Connection
from paddlewheel.bus.nats.errors import STREAM_MISSING, FeedLostError, mapped
from paddlewheel.bus.streams import StreamSpec, live_subject, matches
from paddlewheel.contracts.base import Timestamp
from paddlewheel.core.errors import Retry

BATCH = 256
"""Messages in one answer, at most."""
LOOK_EVERY = 10.0
"""Seconds after which a stream is looked at without a signal: one is lost with the server that sends it."""
_LAG = 2.0
"""Seconds within which whichever server answers has what was signalled; it may be a follower."""
_LAG_POLL = 0.02
_NOTHING, _END, _NOBODY = "404", "204", "503"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: TypeAdapter[datetime] = TypeAdapter(Timestamp)


class DirectFeed:
    """Messages of one stream from a position on, in order. `fetch` may raise FeedLostError or Retry."""

    def __init__(
        self, connection: Connection, client: Client, spec: StreamSpec, filters: tuple[str, ...]
    ) -> None:
        self._connection = connection
        self._client = client
        self.stream = spec.name
        self._spec = spec
        self._filters = filters
        self._next = 1
        self._since: datetime | None = None
        self._waiting: list[Msg] = []
        self._has_more = False
        self._signalled = 0
        self._last_signal = 0
        self._created = ""
        self._signal = asyncio.Event()
        self._is_lost = False
        self._is_doubtful = False
        self._subscriptions: list[Subscription] = []
        self.pending = 0
        """Stored messages that were due when it was opened."""

    async def open(self, policy: DeliverPolicy, since: datetime | None = None) -> None:
        """Begin with what is published from now on, with what was stored from `since` on, or with everything.

        Raises Retry or FeedLostError.
        """
        self._stop_listening = self._connection.on_lost(self._on_lost)
        try:
            with mapped(f"subscribe to {self.stream}"):
                for subject in self._filters:
                    live = live_subject(self._spec, subject)
                    self._subscriptions.append(await self._client.subscribe(live, cb=self._on_signal))
                await self._client.flush(int(TIMEOUT))
            # Before anything is read: what is read later may be another stream's.
            self._created, last = await self._ask_stream()
            if policy == DeliverPolicy.NEW:
                self._next = last + 1
                return
            self._since = since
            self._waiting = await self._get()
            if self._waiting:
                self.pending = len(self._waiting) + self._waiting[-1].metadata.num_pending
        except BaseException:
            await self.close()
            raise

    async def fetch(self, room: int) -> list[Msg]:
        """Wait for at least one message."""
        while not self._waiting:
            self._waiting = await self._get()
            if not self._waiting and not self._has_more:
                self._waiting = await self._await_more()
        taken, self._waiting = self._waiting[:room], self._waiting[room:]
        return taken

    async def close(self) -> list[Msg]:
        """Stop; nothing is owed to the server."""
        self._stop_listening()
        for subscription in self._subscriptions:
            with suppress(nats.errors.Error, OSError):
                await subscription.unsubscribe()
        self._subscriptions.clear()
        return []

    async def _await_more(self) -> list[Msg]:
        """Return at a signal, or after a while without one. What was signalled may still be on its way."""
        if self._signalled < self._next:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signal.wait(), LOOK_EVERY)
        self._signal.clear()
        self._check_connected()
        if self._signalled < self._next or self._is_doubtful:
            self._is_doubtful = False
            await self._look()
            return []
        end = asyncio.get_running_loop().time() + _LAG
        while asyncio.get_running_loop().time() < end:
            if found := await self._get():
                return found
            await asyncio.sleep(_LAG_POLL)
        # Removed since.
        self._next = self._signalled + 1
        return []

    async def _look(self) -> None:
        """Whether the stream is still the one that was read."""
        created, last = await self._ask_stream()
        if created != self._created or last < self._next - 1:
            raise FeedLostError("the stream was made anew")
        self._signalled = max(self._signalled, last)

    async def _ask_stream(self) -> tuple[str, int]:
        """When the stream was created, and its last sequence. Raises Retry."""
        subject = f"$JS.API.STREAM.INFO.{self.stream}"
        async with self._connection.calling(f"stream {self.stream}"):
            answer = json.loads(await self._connection.request(subject, b""))
            if "error" in answer:
                APIError.from_error(answer["error"])
        return str(answer["created"]), int(answer["state"]["last_seq"])

    async def _get(self) -> list[Msg]:
        """The next messages that are stored, [] when there is none now."""
        self._check_connected()
        arrived: asyncio.Queue[Msg] = asyncio.Queue()

        async def take(msg: Msg) -> None:
            arrived.put_nowait(msg)

        inbox = self._client.new_inbox()
        subject = f"$JS.API.DIRECT.GET.{self.stream}"
        async with self._connection.calling(subject):
            answers = await self._client.subscribe(inbox, cb=take)
            try:
                await self._client.publish(subject, json.dumps(self._request()).encode(), reply=inbox)
                return await self._batch(arrived)
            finally:
                with suppress(nats.errors.Error, OSError):
                    await answers.unsubscribe()

    def _request(self) -> dict[str, object]:
        request: dict[str, object] = {"batch": BATCH, "next_by_subj": self._wanted}
        if self._since is not None:
            return {**request, "start_time": self._since.isoformat()}
        return {**request, "seq": self._next}

    @property
    def _wanted(self) -> str:
        """One pattern; of several filters, all of the stream."""
        return self._filters[0] if len(self._filters) == 1 else self._spec.subjects[0]

    async def _batch(self, arrived: asyncio.Queue[Msg]) -> list[Msg]:
        found: list[Msg] = []
        while _status(msg := await arrived.get()) == "":
            found.append(self._stored(msg))
        if _status(msg) == _NOBODY:
            raise Retry(STREAM_MISSING, f"no stream {self.stream}")
        if _status(msg) not in (_NOTHING, _END):
            raise FeedLostError(f"{self.stream}: {_status(msg)} {(msg.headers or {}).get('Description', '')}")
        self._has_more = bool(found) and found[-1].metadata.num_pending > 0
        if found:
            self._since = None
            self._next = found[-1].metadata.sequence.stream + 1
        return [msg for msg in found if any(matches(each, msg.subject) for each in self._filters)]

    def _stored(self, msg: Msg) -> Msg:
        """As a consumer delivers it."""
        headers = msg.headers or {}
        at = (_TIME.validate_python(headers["Nats-Time-Stamp"]) - _EPOCH) // timedelta(microseconds=1)
        sequence, pending = headers["Nats-Sequence"], headers["Nats-Num-Pending"]
        reply = f"$JS.ACK.{self.stream}.direct.1.{sequence}.{sequence}.{at * 1000}.{pending}"
        return Msg(self._client, subject=headers["Nats-Subject"], reply=reply, data=msg.data, headers=headers)

    async def _on_signal(self, msg: Msg) -> None:
        sequence = int((msg.headers or {}).get("Nats-Sequence", "0"))
        if sequence < self._last_signal:
            # Only a stream that was made anew counts from one again.
            self._is_lost = True
        if not self._last_signal and sequence < self._next:
            # Late, or of a stream that was made anew: look.
            self._is_doubtful = True
        self._last_signal = sequence
        self._signalled = max(self._signalled, sequence)
        self._signal.set()

    def _on_lost(self) -> None:
        self._is_lost = True
        self._signal.set()

    def _check_connected(self) -> None:
        if self._is_lost:
            raise FeedLostError("connection lost, or the stream was made anew")


def _status(msg: Msg) -> str:
    """ "" for a stored message; what it was stored with may not look like the end of a batch."""
    headers = msg.headers or {}
    return "" if "Nats-Sequence" in headers else headers.get("Status", "")
