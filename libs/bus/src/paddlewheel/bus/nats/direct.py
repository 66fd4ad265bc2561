"""Reads a stream without a consumer: stored messages in batches of direct gets, and signals of new ones.

A client that may create a consumer can have the server publish on any subject (docs/decisions/0027), so
services and agents create none. When a message is stored, the stream republishes its headers
(`StreamSpec.live`). This signal contains the sequence of the message, which the feed then gets.

Any replica answers a direct get, and it may lag behind, so only the stream's leader is trusted about the
absence of messages. The position moves only to messages that were received, so no answer makes the feed skip
one.

A signal is only a hint. Agents share an account, and the server does not check reply subjects, so one agent
can have the answer to its own request delivered to another agent as a signal, with any sequence. Therefore a
signal never ends a feed. A doubtful signal only causes a question to the leader, at most one each second.
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
"""The longest time between two questions to the leader. Signals are lost with the server that sends them."""
_CHECK_FIRST_INTERVAL_SECONDS = 1.0
"""Seconds until the first question to the leader, and until the next one after it had a message without a
signal; doubled each time. Another server may not know the subscription to signals yet."""
_CHECK_MIN_INTERVAL_SECONDS = 1.0
"""The shortest time between two questions to the leader because of doubtful signals."""
_LAG_RETRY_INTERVAL_SECONDS = (0.02, 0.04, 0.08, 0.16)
"""Seconds between attempts to get a signalled message from any replica, before the leader is asked."""
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
        """The last signalled sequence. If it is `_next` or later, the message was not received yet."""
        self._last_signal = 0
        self._check_interval = _CHECK_FIRST_INTERVAL_SECONDS
        self._check_at = 0.0
        self._checked_at = 0.0
        self._created = ""
        self._signal = asyncio.Event()
        self._is_lost = False
        self._ignores_signals = False
        """Until the next check, because a signalled message does not exist."""
        self._subscriptions: list[Subscription] = []
        self.pending = 0
        """Stored messages to read when the feed was opened."""

    async def open(self, policy: DeliverPolicy, since: datetime | None = None) -> None:
        """Begin with messages published from now on, with those stored since `since`, or with all.

        Raises Retry or FeedLostError.
        """
        self._stop_listening = self._connection.on_lost(self._on_lost)
        try:
            with mapped(f"subscribe to {self.stream}"):
                for subject in self._filters:
                    live = live_subject(self._spec, subject)
                    self._subscriptions.append(await self._client.subscribe(live, cb=self._on_signal))
                await self._client.flush(int(CALL_TIMEOUT_SECONDS))
            # Before anything is read, to detect later that the stream was re-created.
            self._created, last = await self._ask_stream()
            self._plan_check()
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
        """End the subscriptions. No unfetched message has to be released, so the list is empty."""
        self._stop_listening()
        for subscription in self._subscriptions:
            await unsubscribe(subscription)
        self._subscriptions.clear()
        return []

    async def _await_more(self) -> list[Msg]:
        """The next messages after a signal or after a check of the leader; [] when there are none."""
        self._check_connected()
        if _now() >= self._check_at:
            return await self._check_leader()
        if self._signalled >= self._next:
            return await self._get_signalled()
        self._signal.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._check_at):
                await self._signal.wait()
        return []

    async def _check_leader(self) -> list[Msg]:
        """Ask the leader whether the stream is still the one that was read, and for the next message."""
        # A message that is signalled from now on may be stored after the leader has answered.
        self._ignores_signals = False
        created, last = await self._ask_stream()
        if created != self._created or last < self._next - 1:
            raise FeedLostError("the stream was re-created")
        found = await self._get_from_leader() if last >= self._next else []
        self._check_interval = (
            _CHECK_FIRST_INTERVAL_SECONDS
            if found
            else min(2 * self._check_interval, CHECK_MAX_INTERVAL_SECONDS)
        )
        self._plan_check()
        return found

    def _plan_check(self) -> None:
        self._checked_at = _now()
        self._check_at = self._checked_at + self._check_interval

    def _check_soon(self) -> None:
        self._check_at = min(self._check_at, self._checked_at + _CHECK_MIN_INTERVAL_SECONDS)

    async def _get_signalled(self) -> list[Msg]:
        """Get the signalled message, which a replica may have later, or which was removed."""
        signalled = self._signalled
        for pause in _LAG_RETRY_INTERVAL_SECONDS:
            if (found := await self._get()) or self._next > signalled:
                return found
            await asyncio.sleep(pause)
        if not (found := await self._get_from_leader()):
            self._signalled, self._ignores_signals, self._checked_at = 0, True, _now()
            self._check_soon()
        return found

    async def _ask_stream(self) -> tuple[str, int]:
        """When the stream was created, and its last sequence. Raises Retry."""
        answer = await ask_api(self._connection, f"STREAM.INFO.{self.stream}", absent=0) or {}
        return str(answer["created"]), int(answer["state"]["last_seq"])

    async def _get_from_leader(self) -> list[Msg]:
        """The next stored message, from the leader; [] when there is none."""
        if self._since is not None:
            return await self._get_since(self._since)
        asked = [await get_message(self._connection, self.stream, self._position(f)) for f in self._filters]
        if not (found := [each for each in asked if each]):
            return []
        first = min(found, key=lambda each: each.sequence)
        subject, data, headers = first.message.subject, first.message.data, dict(first.message.headers)
        return self._received([self._delivered(subject, data, headers, first.sequence, first.at)])

    async def _get_since(self, since: datetime) -> list[Msg]:
        """The first messages since a time, from replicas: a leader cannot look up by time. Raises
        FeedLostError when the leader has such messages, and the replicas that answer do not."""
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
        """The next messages of one of the replicas; [] when it has none."""
        self._check_connected()
        request = json.dumps({"batch": BATCH, **self._position(self._wanted)}).encode()
        subject = f"{API}.DIRECT.GET.{self.stream}"
        async with self._connection.calling(subject):
            while (found := await self._get_once(subject, request)) is None:
                pass
        return self._received(found)

    async def _get_once(self, subject: str, request: bytes) -> list[Msg] | None:
        """The messages of one batch. None when the request must be repeated, because no answer arrived."""
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
        """The fields of a request for the next message that matches the pattern."""
        if self._since is not None:
            return {"next_by_subj": wanted, "start_time": self._since.isoformat()}
        return {"next_by_subj": wanted, "seq": self._next}

    @property
    def _wanted(self) -> str:
        """The pattern for requests: the filter, or all subjects of the stream for several filters."""
        return self._filters[0] if len(self._filters) == 1 else self._spec.subjects[0]

    async def _batch(self, msg: Msg, arrived: asyncio.Queue[Msg]) -> list[Msg]:
        """All messages of a batch that begins with `msg`."""
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
        """Move the position behind the received messages, and return the messages that match."""
        if found:
            self._since = None
            self._next = found[-1].metadata.sequence.stream + 1
        return [msg for msg in found if any(matches(each, msg.subject) for each in self._filters)]

    def _stored(self, msg: Msg) -> Msg:
        """A message of a batch in the form of a consumer's."""
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
        """A message in the form in which a consumer delivers it."""
        nanoseconds = (at - _EPOCH) // timedelta(microseconds=1) * 1000
        reply = f"$JS.ACK.{self.stream}.direct.1.{sequence}.{sequence}.{nanoseconds}.{pending}"
        return Msg(self._client, subject=subject, reply=reply, data=data, headers=headers)

    async def _on_signal(self, msg: Msg) -> None:
        if self._ignores_signals:
            return
        sequence = _sequence_of(msg)
        # A lower sequence is from a re-created stream, or the first signal is late.
        if sequence < self._last_signal or (not self._last_signal and sequence < self._next):
            self._check_soon()
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
    """The status of an answer; "" for a stored message, whatever status its own headers contain."""
    headers = msg.headers or {}
    return "" if "Nats-Sequence" in headers else headers.get("Status", "")


def _sequence_of(signal: Msg) -> int:
    """The sequence in a signal; 0 without a valid one."""
    try:
        return int((signal.headers or {}).get("Nats-Sequence", "0"))
    except ValueError:
        return 0


def _now() -> float:
    return asyncio.get_running_loop().time()
