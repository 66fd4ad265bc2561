"""The live facts of namespaces: their order, and a reader that is too slow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paddlewheel.bus.admin.teams import within
from paddlewheel.bus.nats import live
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.nats.live import LiveReader
from paddlewheel.bus.nats.subscribe import subscribed
from paddlewheel.bus.ports import Reading
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.clock import ManualClock

Take = Callable[[Any], Awaitable[None]]


class FakeConnection:
    """A connection on which the test delivers messages itself."""

    trouble = ""

    def __init__(self) -> None:
        self.takes: dict[str, Take] = {}
        self.forbidden: set[str] = set()

    async def client(self) -> FakeConnection:
        return self

    def on_lost(self, _: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    @asynccontextmanager
    async def calling(self, _: str) -> AsyncIterator[None]:
        yield

    async def subscribe(self, subject: str, *, queue: str, cb: Take) -> FakeConnection:
        self.takes[subject] = cb
        return self

    async def flush(self) -> None:
        """Everything is sent at once."""

    async def unsubscribe(self) -> None:
        """The test delivers nothing after it."""


SUSPENDED, RESUMED = (f"pw.evt.jobs.job.{fact}.v1.*.*" for fact in ("suspended", "resumed"))


@pytest.mark.parametrize(
    ("subjects", "subscriptions"),
    [
        ([SUSPENDED], [within(SUSPENDED, "a")]),
        ([SUSPENDED, RESUMED], [within("pw.evt.jobs.>", "a")]),
        ([SUSPENDED, "pw.evt.models.>"], [within(SUSPENDED, "a"), within("pw.evt.models.>", "a")]),
    ],
)
def test_the_facts_of_a_stream_have_one_subscription(subjects: list[str], subscriptions: list[str]) -> None:
    """nats-py keeps no order between two."""
    assert live._subscriptions([within(subject, "a") for subject in subjects]) == tuple(subscriptions)


async def test_messages_that_a_slow_reader_has_no_room_for_are_dropped() -> None:
    made = FakeConnection()
    async with aclosing(subscribed(cast(Connection, made), "facts", limit=3)) as messages:
        assert await anext(messages) is None
        for number in range(10):
            await made.takes["facts"](SimpleNamespace(subject="facts", number=number))
        found = [cast(Any, await anext(messages)).number for _ in range(3)]
        await made.takes["facts"](SimpleNamespace(subject="facts", number=10))
        assert [*found, cast(Any, await anext(messages)).number] == [0, 1, 2, 10]


async def test_a_subject_that_the_account_may_not_read_is_named() -> None:
    made = FakeConnection()
    made.forbidden.add(within(SUSPENDED, "a"))
    reader = LiveReader(cast(Connection, made), ("a",), ManualClock())
    with pytest.raises(Retry, match=r"may not subscribe to pw\.evt\.jobs\.job\.suspended"):
        await reader._check_permitted([within(SUSPENDED, "a")])
    await reader._check_permitted([within(RESUMED, "a")])


def test_the_subjects_of_a_selection_are_those_of_the_namespaces() -> None:
    reader = LiveReader(cast(Connection, FakeConnection()), ("a", "b"), ManualClock())
    assert reader._subjects(Reading((SUSPENDED,))) == (within(SUSPENDED, "a"), within(SUSPENDED, "b"))
