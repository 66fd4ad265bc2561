"""Reading a stream without a consumer: what is stored in batches, and a signal when there is more.

Whoever may create a consumer has the server publish wherever it likes (docs/decisions/0027), so services and
agents create none. The stream republishes the headers of each message once it is stored (`StreamSpec.live`),
which says that there is something to get, and at which sequence; batches of direct gets bring it.

Any replica answers a direct get, and it may lag behind: "nothing" is believed from the stream's leader alone.
The position moves only to what was received, so that nothing is passed over whoever answers what.

A signal is a hint. Agents share an account, and the server checks no reply subjects: one agent has the answer
to a request of its own delivered to another as a signal, with a sequence of any stream or none. So a signal
ends nothing. What is odd about it has the leader asked, and for a second no more.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import DeliverPolicy

from paddlewheel.bus.nats.answers import RESEND_INTERVAL_SECONDS
from paddlewheel.bus.nats.api import API, ask_api, get_message
from paddlewheel.bus.nats.client import Client
from paddlewheel.bus.nats.connection import CALL_TIMEOUT_SECONDS, Connection
from paddlewheel.bus.nats.errors import STREAM_MISSING, FeedLostError, mapped
from paddlewheel.bus.nats.subscribe import unsubscribe
from paddlewheel.bus.streams import StreamSpec, live_subject, matches
from paddlewheel.contracts.base import read_time
from paddlewheel.core.errors import Retry

BATCH = 256
"""Messages in one answer."""
CHECK_MAX_INTERVAL_SECONDS = 10.0
"""Seconds after which the leader is asked without a signal: one is lost with the server that sends it."""
_CHECK_FIRST_INTERVAL_SECONDS = 1.0
"""Seconds after which it is asked first, or again once it had what was not signalled; then twice as many.
Another server may not have heard yet of the subscription to signals."""
_CHECK_MIN_INTERVAL_SECONDS = 1.0
"""Seconds between two times that the leader is asked because of doubtful signals, at least."""
_LAG_RETRY_INTERVAL_SECONDS = (0.02, 0.04, 0.08, 0.16)
"""Seconds between tries to get what was signalled, of any replica; after them the leader is asked."""
_NOTHING, _END, _NOBODY = "404", "204", "503"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
        """Sequence that is known to be stored and was not got yet, if it is `_next` or later."""
        self._last_signal = 0
        self._look_after = _CHECK_FIRST_INTERVAL_SECONDS
        self._look_at = 0.0
        self._looked_at = 0.0
        self._created = ""
        self._signal = asyncio.Event()
        self._is_lost = False
        self._is_deaf = False
        """Until the next look: what was signalled does not exist."""
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
                await self._client.flush(int(CALL_TIMEOUT_SECONDS))
            # Before anything is read: what is read later may be another stream's.
            self._created, last = await self._ask_stream()
            self._plan_look()
            if policy == DeliverPolicy.NEW:
                self._next = last + 1
                return
            self._since = since
            self._waiting = await self._get()
            while not self._has_more and (found := await self._get_from_leader()):
                self._waiting += found
            if self._waiting:
                self.pending = len(self._waiting) + self._waiting[-1].metadata.num_pending
        except BaseException:
            await self.close()
            raise

    async def fetch(self, room: int) -> list[Msg]:
        """Wait for at least one message."""
        if not self._waiting:
            self._waiting = await self._get()
        while not self._waiting:
            self._waiting = await self._get() if self._has_more else await self._await_more()
        taken, self._waiting = self._waiting[:room], self._waiting[room:]
        return taken

    async def close(self) -> list[Msg]:
        """Stop; nothing is owed to the server."""
        self._stop_listening()
        for subscription in self._subscriptions:
            await unsubscribe(subscription)
        self._subscriptions.clear()
        return []

    async def _await_more(self) -> list[Msg]:
        """What is there after a signal, or after a while without one; [] when it is nothing."""
        self._check_connected()
        if _now() >= self._look_at:
            return await self._look()
        if self._signalled >= self._next:
            return await self._get_signalled()
        self._signal.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._look_at):
                await self._signal.wait()
        return []

    async def _look(self) -> list[Msg]:
        """Ask the leader whether the stream is still the one that was read, and what it has."""
        # What is signalled from now on may be stored after the leader has answered.
        self._is_deaf = False
        created, last = await self._ask_stream()
        if created != self._created or last < self._next - 1:
            raise FeedLostError("the stream was made anew")
        found = await self._get_from_leader() if last >= self._next else []
        self._look_after = (
            _CHECK_FIRST_INTERVAL_SECONDS if found else min(2 * self._look_after, CHECK_MAX_INTERVAL_SECONDS)
        )
        self._plan_look()
        return found

    def _plan_look(self) -> None:
        self._looked_at = _now()
        self._look_at = self._looked_at + self._look_after

    def _doubt(self) -> None:
        """Look soon."""
        self._look_at = min(self._look_at, self._looked_at + _CHECK_MIN_INTERVAL_SECONDS)

    async def _get_signalled(self) -> list[Msg]:
        """A replica that lags has it a moment later; what the leader does not have was removed since, or was
        never there."""
        signalled = self._signalled
        for pause in _LAG_RETRY_INTERVAL_SECONDS:
            if (found := await self._get()) or self._next > signalled:
                return found
            await asyncio.sleep(pause)
        if not (found := await self._get_from_leader()):
            self._signalled, self._is_deaf, self._looked_at = 0, True, _now()
            self._doubt()
        return found

    async def _ask_stream(self) -> tuple[str, int]:
        """When the stream was created, and its last sequence. Raises Retry."""
        answer = await ask_api(self._connection, f"STREAM.INFO.{self.stream}", absent=0) or {}
        return str(answer["created"]), int(answer["state"]["last_seq"])

    async def _get_from_leader(self) -> list[Msg]:
        """The next message that is stored; [] when there is none, whatever replicas know."""
        if self._since is not None:
            return await self._get_since(self._since)
        asked = [await get_message(self._connection, self.stream, self._position(f)) for f in self._filters]
        if not (found := [each for each in asked if each]):
            return []
        first = min(found, key=lambda each: each.sequence)
        subject, data, headers = first.message.subject, first.message.data, dict(first.message.headers)
        return self._received([self._delivered(subject, data, headers, first.sequence, first.at)])

    async def _get_since(self, since: datetime) -> list[Msg]:
        """The first messages from a time on, by which leaders look nothing up. Raises FeedLostError when the
        leader has some, and the replicas that answer do not get them."""
        newest = [
            await get_message(self._connection, self.stream, {"last_by_subj": f}) for f in self._filters
        ]
        if all(each is None or each.at < since for each in newest):
            return []
        for pause in _LAG_RETRY_INTERVAL_SECONDS:
            if (found := await self._get()) or self._since is None:
                return found
            await asyncio.sleep(pause)
        raise FeedLostError("replicas of the stream lag behind")

    async def _get(self) -> list[Msg]:
        """The next messages that one of the replicas has, [] when it has none now."""
        self._check_connected()
        request = json.dumps({"batch": BATCH, **self._position(self._wanted)}).encode()
        subject = f"{API}.DIRECT.GET.{self.stream}"
        async with self._connection.calling(subject):
            while (found := await self._get_once(subject, request)) is None:
                pass
        return self._received(found)

    async def _get_once(self, subject: str, request: bytes) -> list[Msg] | None:
        """None when it is to be asked again: it was dropped on its way."""
        arrived: asyncio.Queue[Msg] = asyncio.Queue()

        async def take(msg: Msg) -> None:
            arrived.put_nowait(msg)

        inbox = self._client.new_inbox()
        answers = await self._client.subscribe(inbox, cb=take)
        try:
            await self._client.publish(subject, request, reply=inbox)
            try:
                async with asyncio.timeout(RESEND_INTERVAL_SECONDS):
                    first = await arrived.get()
            except TimeoutError:
                return None
            return await self._batch(first, arrived)
        finally:
            await unsubscribe(answers)

    def _position(self, wanted: str) -> dict[str, object]:
        """Of the next message of that pattern, as a request has it."""
        if self._since is not None:
            return {"next_by_subj": wanted, "start_time": self._since.isoformat()}
        return {"next_by_subj": wanted, "seq": self._next}

    @property
    def _wanted(self) -> str:
        """One pattern; of several filters, all of the stream."""
        return self._filters[0] if len(self._filters) == 1 else self._spec.subjects[0]

    async def _batch(self, msg: Msg, arrived: asyncio.Queue[Msg]) -> list[Msg]:
        """All messages from the first on."""
        found: list[Msg] = []
        while _status(msg) == "":
            found.append(self._stored(msg))
            msg = await arrived.get()
        if _status(msg) == _NOBODY:
            raise Retry(STREAM_MISSING, f"no stream {self.stream}")
        if _status(msg) not in (_NOTHING, _END):
            raise FeedLostError(f"{self.stream}: {_status(msg)} {(msg.headers or {}).get('Description', '')}")
        self._has_more = bool(found) and found[-1].metadata.num_pending > 0
        return found

    def _received(self, found: list[Msg]) -> list[Msg]:
        """Those that are wanted; the position is behind all."""
        if found:
            self._since = None
            self._next = found[-1].metadata.sequence.stream + 1
        return [msg for msg in found if any(matches(each, msg.subject) for each in self._filters)]

    def _stored(self, msg: Msg) -> Msg:
        """A message of a batch."""
        headers = msg.headers or {}
        at = read_time(headers["Nats-Time-Stamp"])
        sequence, pending = int(headers["Nats-Sequence"]), int(headers["Nats-Num-Pending"])
        return self._delivered(headers["Nats-Subject"], msg.data, headers, sequence, at, pending)

    def _delivered(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str],
        sequence: int,
        at: datetime,
        pending: int = 0,
    ) -> Msg:
        """As a consumer delivers it."""
        nanoseconds = (at - _EPOCH) // timedelta(microseconds=1) * 1000
        reply = f"$JS.ACK.{self.stream}.direct.1.{sequence}.{sequence}.{nanoseconds}.{pending}"
        return Msg(self._client, subject=subject, reply=reply, data=data, headers=headers)

    async def _on_signal(self, msg: Msg) -> None:
        if self._is_deaf:
            return
        sequence = _sequence_of(msg)
        # Only a stream that was made anew counts from one again. The first signal may be late, or of one.
        if sequence < self._last_signal or (not self._last_signal and sequence < self._next):
            self._doubt()
        self._last_signal = sequence
        self._signalled = max(self._signalled, sequence)
        self._signal.set()

    def _on_lost(self) -> None:
        self._is_lost = True
        self._signal.set()

    def _check_connected(self) -> None:
        if self._is_lost:
            raise FeedLostError("connection lost")


def _status(msg: Msg) -> str:
    """ "" for a stored message; what it was stored with may not look like the end of a batch."""
    headers = msg.headers or {}
    return "" if "Nats-Sequence" in headers else headers.get("Status", "")


def _sequence_of(signal: Msg) -> int:
    """0 for what is none."""
    try:
        return int((signal.headers or {}).get("Nats-Sequence", "0"))
    except ValueError:
        return 0


def _now() -> float:
    return asyncio.get_running_loop().time()
