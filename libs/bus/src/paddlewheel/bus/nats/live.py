"""Live facts through plain subscriptions, without requests and without a stored position."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import aclosing

from nats.aio.msg import Msg

from paddlewheel.bus.admin.teams import namespace_of, within
from paddlewheel.bus.nats.client import NOT_PERMITTED
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.consume import REOPEN_INTERVAL_SECONDS, read_event
from paddlewheel.bus.nats.subscribe import subscribed
from paddlewheel.bus.ports import Delivery, Reading
from paddlewheel.bus.streams import matches, overlaps, stream_named, streams_under
from paddlewheel.contracts.base import read_time
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry, Unavailable
from paddlewheel.core.library_logging import LibraryLogger

WAITING_FACTS_MAX = 10_000
"""The number of facts that wait for a slow reader. Further ones are dropped."""


log = LibraryLogger(__name__)


class LiveReader:
    """Reader of the live facts of some namespaces. Facts published while it is not connected are missed."""

    def __init__(self, connection: Connection, namespaces: tuple[str, ...], clock: Clock) -> None:
        self._connection = connection
        self._namespaces = namespaces
        self._clock = clock

    async def read(self, reading: Reading) -> AsyncGenerator[Delivery, None]:
        if not reading.is_live:
            raise Permanent("LiveOnly", "a client that watches namespaces receives live facts only")
        subjects, is_first = self._subjects(reading), True
        subscriptions = _subscriptions(subjects)
        await self._reach(reading.open_within)
        while True:
            try:
                async with aclosing(
                    subscribed(self._connection, *subscriptions, limit=WAITING_FACTS_MAX)
                ) as messages:
                    async for msg in messages:
                        if msg is None:
                            await self._check_permitted(subscriptions)
                        elif _is_wanted(msg, subjects) and (delivery := _delivery(msg)):
                            yield delivery
                        if is_first and reading.caught_up:
                            reading.caught_up()
                        is_first = False
            except Retry as error:
                log.warning("facts are not received for now", why=str(error))
            await self._clock.sleep(REOPEN_INTERVAL_SECONDS)

    async def _check_permitted(self, subjects: Collection[str]) -> None:
        """Raises Retry when the account may not subscribe to one of the subjects."""
        client = await self._connection.client()
        if refused := sorted(subject for subject in subjects if subject.lower() in client.forbidden):
            raise Retry(NOT_PERMITTED, f"the account may not subscribe to {', '.join(refused)}")

    async def _reach(self, limit: float | None) -> None:
        """Wait for the bus. Raises Unavailable after `limit` seconds, or Permanent."""
        try:
            async with asyncio.timeout(limit):
                while True:
                    with contextlib.suppress(Retry):
                        await self._connection.client()
                        return
                    await self._clock.sleep(REOPEN_INTERVAL_SECONDS)
        except TimeoutError:
            why = f"no answer within open_within={limit} s{self._connection.trouble}"
            raise Unavailable("BusUnreachable", why) from None

    def _subjects(self, reading: Reading) -> tuple[str, ...]:
        """The subjects in the client's namespaces. Raises Permanent when there is none."""
        everything = {
            within(subject, namespace)
            for subject in reading.subjects
            for namespace in self._namespaces
            if overlaps(subject, within(subject, namespace))
        }
        if not everything:
            names = ", ".join(self._namespaces)
            raise Permanent(
                "NotWatched", f"{', '.join(reading.subjects)}: this client may watch only namespaces {names}"
            )
        return tuple(sorted(everything))


def _subscriptions(subjects: Iterable[str]) -> tuple[str, ...]:
    """One subject for each stream and namespace: two subscriptions have no common order."""
    wanted: set[str] = set()
    for stream, filters in streams_under(tuple(subjects)).items():
        for namespace, own in _by_namespace(filters).items():
            all_of_stream = (within(pattern, namespace) for pattern in stream_named(stream).subjects)
            wanted.update(own if len(own) == 1 else all_of_stream)
    return tuple(sorted(wanted))


def _by_namespace(subjects: Iterable[str]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for subject in subjects:
        found[namespace_of(subject)].append(subject)
    return found


def _is_wanted(msg: Msg, subjects: Iterable[str]) -> bool:
    return any(matches(subject, msg.subject) for subject in subjects)


def _delivery(msg: Msg) -> Delivery | None:
    if (event := read_event(msg)) is None:
        return None
    headers = msg.headers or {}
    at = headers.get("Nats-Time-Stamp")
    stored_at = read_time(at) if at else event.time
    return Delivery(event, msg.subject, 1, int(headers.get("Nats-Sequence", "0")), stored_at)
