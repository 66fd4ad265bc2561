"""The informer: own writes during a call, and the changes that it reports to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Conflict
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.ports import CONFIG_MAPS, Change, Object
from paddlewheel.testkit.clock import ManualClock

KEY = Key("n", "a")


def obj(version: int, name: str = "a") -> Object:
    return {"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": str(version)}}


class Feed:
    """A watch that yields the events of the test."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Change | Callable[[], None]] = asyncio.Queue()
        self.watched: list[tuple[Any, ...]] = []
        self.is_closed = False
        self.on_synced: Callable[[], None] = lambda: None
        self.on_absent: Callable[[], None] | None = None

    async def watch(self, *what: Any, **options: Any) -> AsyncGenerator[Change, None]:
        self.on_synced, self.on_absent = options.pop("on_synced"), options.pop("on_absent")
        self.watched.append((*what, options))
        try:
            while True:
                event = await self.events.get()
                if isinstance(event, Change):
                    yield event
                else:
                    event()
        finally:
            self.is_closed = True


class Flow:
    """One informer with events from the test, and the changes that it reports."""

    def __init__(self, *, optional: bool = False) -> None:
        self.feed = Feed()
        self.informer = Informer(self.feed, CONFIG_MAPS, clock=ManualClock(), optional=optional)
        self.passed: list[tuple[str, str, bool]] = []
        self.listed: list[bool] = []
        self.installed: list[tuple[bool, int]] = []

    def on_change(self, change: Change) -> None:
        meta = change.obj["metadata"]
        self.passed.append((change.type, meta["resourceVersion"], self.informer.is_own(change)))
        self.listed.append(change.listed)

    def on_installed(self, installed: bool) -> None:
        self.installed.append((installed, len(self.informer.list())))

    async def run(self) -> None:
        await self.informer.run(self.on_change, self.on_installed)

    async def report(self, *events: Change | Callable[[], None]) -> None:
        for event in events:
            self.feed.events.put_nowait(event)
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture(params=[False])
async def flow(request: pytest.FixtureRequest) -> AsyncIterator[Flow]:
    flow = Flow(optional=request.param)
    task = asyncio.create_task(flow.run())
    await asyncio.sleep(0)
    yield flow
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def answers(wait: asyncio.Event, outcome: Object | Exception) -> Object:
    await wait.wait()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def test_stale_changes_are_not_passed_on(flow: Flow) -> None:
    flow.informer.wrote(obj(7))
    await flow.report(Change("ADDED", obj(6)), Change("MODIFIED", obj(7)))
    assert flow.passed == [("MODIFIED", "7", False)]


async def test_of_an_own_write_only_what_is_kept_is_remembered() -> None:
    informer = Informer(Feed(), CONFIG_MAPS, clock=ManualClock(), keep=lambda o: {"metadata": o["metadata"]})
    informer.wrote({**obj(7), "data": {"a": "b"}})
    assert informer.get(KEY) == {"metadata": obj(7)["metadata"]}


async def test_an_event_that_arrives_before_the_answer_is_known_as_own(flow: Flow) -> None:
    answered = asyncio.Event()
    write = asyncio.create_task(flow.informer.write(KEY, answers(answered, obj(6))))
    await flow.report(Change("ADDED", obj(5)), Change("MODIFIED", obj(6)), Change("ADDED", obj(4, "b")))
    assert flow.informer.get(KEY) == obj(6)
    assert flow.passed == [("ADDED", "4", False)]
    answered.set()
    assert await write == obj(6)
    assert flow.passed[1:] == [("ADDED", "5", False), ("MODIFIED", "6", True)]
    await flow.report(Change("MODIFIED", obj(8)))
    assert flow.passed[3:] == [("MODIFIED", "8", False)]


async def test_the_event_of_the_write_before_is_passed_on_as_own(flow: Flow) -> None:
    flow.informer.wrote(obj(5))
    answered = asyncio.Event()
    write = asyncio.create_task(flow.informer.write(KEY, answers(answered, obj(6))))
    await flow.report(Change("ADDED", obj(5)), Change("MODIFIED", obj(6)))
    answered.set()
    await write
    assert flow.passed == [("ADDED", "5", True), ("MODIFIED", "6", True)]


async def test_a_change_that_follows_an_own_one_is_not_own(flow: Flow) -> None:
    answered = asyncio.Event()
    write = asyncio.create_task(flow.informer.write(KEY, answers(answered, obj(6))))
    await flow.report(Change("ADDED", obj(6)), Change("MODIFIED", obj(7)))
    answered.set()
    await write
    assert flow.passed[-1] == ("MODIFIED", "7", False)
    assert flow.informer.get(KEY) == obj(7)


async def test_a_listed_change_that_arrives_before_the_answer_is_not_own(flow: Flow) -> None:
    answered = asyncio.Event()
    write = asyncio.create_task(flow.informer.write(KEY, answers(answered, obj(6))))
    await flow.report(Change("ADDED", obj(6), listed=True))
    answered.set()
    await write
    assert flow.passed == [("ADDED", "6", False)]


async def test_changes_are_passed_on_when_the_write_fails(flow: Flow) -> None:
    answered = asyncio.Event()
    write = asyncio.create_task(flow.informer.write(KEY, answers(answered, Conflict("moved on"))))
    await flow.report(Change("ADDED", obj(6)))
    assert flow.passed == []
    answered.set()
    with pytest.raises(Conflict):
        await write
    assert flow.passed == [("ADDED", "6", False)]


async def test_changes_are_held_until_the_last_of_several_writes_has_ended(flow: Flow) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    writes = [
        asyncio.create_task(flow.informer.write(KEY, answers(first, obj(6)))),
        asyncio.create_task(flow.informer.write(KEY, answers(second, obj(7)))),
    ]
    await flow.report(Change("ADDED", obj(6)))
    first.set()
    await flow.report(Change("MODIFIED", obj(7)))
    assert flow.passed == []
    second.set()
    await asyncio.gather(*writes)
    assert flow.passed[-1] == ("MODIFIED", "7", True)


async def test_a_change_is_passed_on_at_once_when_another_object_is_written(flow: Flow) -> None:
    answer = asyncio.Event()
    write = asyncio.create_task(flow.informer.write(KEY, answers(answer, obj(6))))
    await flow.report(Change("ADDED", obj(5, "b")))
    passed = list(flow.passed)
    answer.set()
    await write
    assert passed == [("ADDED", "5", False)]


async def test_an_own_change_is_passed_on_at_once_during_the_next_write(flow: Flow) -> None:
    flow.informer.wrote(obj(5))
    answer = asyncio.Event()
    write = asyncio.create_task(flow.informer.write(KEY, answers(answer, obj(6))))
    await flow.report(Change("ADDED", obj(5)))
    passed = list(flow.passed)
    answer.set()
    await write
    assert passed == [("ADDED", "5", True)]


async def test_it_watches_what_it_was_made_for_until_it_is_cancelled() -> None:
    feed, whole = Feed(), Feed()

    def keep(obj: Object) -> Object:
        return obj

    some = Informer(
        feed, CONFIG_MAPS, "n", clock=ManualClock(), label_selector="a=b", field_selector="c=d",
        indexes={"name": lambda obj: [obj["metadata"]["name"]]}, keep=keep,
    )  # fmt: skip
    tasks = [
        asyncio.create_task(some.run()),
        asyncio.create_task(Informer(whole, CONFIG_MAPS, clock=ManualClock()).run()),
    ]
    feed.events.put_nowait(Change("ADDED", obj(5)))
    for _ in range(5):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    selectors = {"label_selector": "a=b", "field_selector": "c=d", "keep": keep}
    assert feed.watched == [(CONFIG_MAPS, "n", selectors)]
    [(resource, namespace, options)] = whole.watched
    assert (resource, namespace, options["label_selector"]) == (CONFIG_MAPS, "", "")
    assert some.by_index("name", "a") == [obj(5)]
    assert feed.is_closed


async def test_a_required_resource_is_installed_once_listed(flow: Flow) -> None:
    assert flow.feed.on_absent is None
    assert (flow.informer.synced, flow.informer.installed) == (False, False)
    await flow.report(Change("ADDED", obj(5), listed=True), flow.feed.on_synced, flow.feed.on_synced)
    assert (flow.informer.synced, flow.informer.installed) == (True, True)
    assert flow.installed == [(True, 1)]


@pytest.mark.parametrize("flow", [True], indirect=True)
async def test_an_optional_resource_comes_and_goes(flow: Flow) -> None:
    absent = flow.feed.on_absent
    assert absent is not None
    await flow.report(absent, absent)
    assert (flow.informer.synced, flow.informer.installed, flow.installed) == (True, False, [])
    await flow.report(Change("ADDED", obj(5), listed=True), flow.feed.on_synced)
    flow.informer.wrote(obj(6, "b"))
    assert (flow.informer.installed, flow.installed) == (True, [(True, 1)])
    await flow.report(absent, absent)
    assert (flow.informer.synced, flow.informer.installed) == (True, False)
    assert flow.installed == [(True, 1), (False, 0)]
    assert flow.passed == [("ADDED", "5", False), ("DELETED", "5", False), ("DELETED", "6", False)]
    assert flow.listed == [True, True, True]
    await flow.report(Change("ADDED", obj(9), listed=True), flow.feed.on_synced)
    assert flow.informer.get(KEY) == obj(9)
    assert flow.installed[2:] == [(True, 1)]
