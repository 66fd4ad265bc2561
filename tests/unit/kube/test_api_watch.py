"""List, watch and relist: the reported changes for every way in which a connection can end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import orjson
import pytest
import structlog

from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube import api_watch, events, informer, membership
from paddlewheel.kube.api_errors import Expired
from paddlewheel.kube.api_watch import ApiWatch, differences
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import CONFIG_MAPS, Change, Object, Objects
from paddlewheel.testkit.clock import ManualClock


def obj(name: str, version: int, uid: str = "") -> Object:
    return {"metadata": {"name": name, "namespace": "n", "uid": uid or name, "resourceVersion": str(version)}}


def event(kind: str, name: str, version: int) -> bytes:
    return orjson.dumps({"type": kind, "object": obj(name, version)}) + b"\n"


def failure(code: int, reason: str) -> bytes:
    return (
        orjson.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": reason}}) + b"\n"
    )


class Stream:
    """The parts of an open response that a watch reads. It ends as given in the script."""

    def __init__(self, chunks: list[bytes | Exception]) -> None:
        self.chunks = chunks
        self.content = self
        self.closed = False

    async def iter_any(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            await asyncio.sleep(0)
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def close(self) -> None:
        self.closed = True


class Script:
    """A server that answers lists and watches from a script, then hangs."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.streams: list[Stream] = []

    async def list_versioned(self, *_: object) -> tuple[Objects, str]:
        self.asked.append("list")
        objects, version = await self._next()
        return objects, version

    async def open_stream(self, resource: object, namespace: str, query: Mapping[str, str]) -> Any:
        self.asked.append(f"watch from {query['resourceVersion']}")
        stream = Stream(await self._next())
        self.streams.append(stream)
        return stream

    async def _next(self) -> Any:
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class ForwardClock(ManualClock):
    """A clock whose sleeps return at once. It records their durations."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


async def reports_of(
    script: Script, clock: ManualClock | None = None, *, optional: bool = False
) -> list[str]:
    """The changes that the watch yields until the script ends."""
    reported: list[str] = []

    async def follow() -> None:
        watch = ApiWatch(script, clock or ForwardClock(), CONFIG_MAPS, "n", {})
        on_absent = (lambda: reported.append("absent")) if optional else None
        async for change in watch.follow(lambda: reported.append("synced"), on_absent):
            reported.append(f"{change.type} {key_of(change.obj).name}")

    task = asyncio.create_task(follow())
    for _ in range(200):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert all(stream.closed for stream in script.streams)
    return reported


FIRST = ([obj("a", 1), obj("b", 2)], "5")
START = ["ADDED a", "ADDED b", "synced"]


async def test_continues_from_the_last_version_when_a_watch_ends() -> None:
    script = Script(FIRST, [event("MODIFIED", "a", 6), event("BOOKMARK", "", 9)], [event("DELETED", "b", 10)])
    assert await reports_of(script) == [*START, "MODIFIED a", "DELETED b"]
    assert script.asked == ["list", "watch from 5", "watch from 9", "watch from 10"]


@pytest.mark.parametrize("gone", [[failure(410, "Expired")], Expired("Expired", "too old")])
async def test_lists_again_when_the_version_is_too_old(gone: Any) -> None:
    script = Script(FIRST, gone, ([obj("a", 7), obj("c", 8)], "20"))
    assert await reports_of(script) == [*START, "DELETED b", "MODIFIED a", "ADDED c", "synced"]
    assert script.asked == ["list", "watch from 5", "list", "watch from 20"]


@pytest.mark.parametrize(
    "fault",
    [
        Retry("ApiServerUnreachable"),
        [aiohttp.ServerDisconnectedError()],
        [ConnectionResetError()],
        [TimeoutError()],
        [b"<html>502 Bad Gateway</html>\n"],
        [b'{"kind":"Status","code":502}\n'],
        [b"[]\n"],
        [b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"9"}}}\n'],
        [b'{"type":"ERROR","object":{"code":null}}\n'],
        [failure(500, "InternalError")],
        NotFound("the server could not find the requested resource"),
        [],
    ],
)
async def test_waits_out_a_fault_and_continues(fault: Any) -> None:
    script = Script(FIRST, fault, fault, [event("ADDED", "c", 6)])
    assert await reports_of(script) == [*START, "ADDED c"]
    assert script.asked[1:4] == ["watch from 5"] * 3


FORBIDDEN = Permanent("Forbidden", 'User "ann" cannot watch resource "pods"')


async def test_a_watch_that_is_forbidden_is_retried_because_a_role_may_appear_later() -> None:
    assert await reports_of(Script(FIRST, FORBIDDEN, [event("ADDED", "c", 6)])) == [*START, "ADDED c"]


async def test_a_watch_that_is_forbidden_ends_for_a_command() -> None:
    watch = ApiWatch(Script(FIRST, FORBIDDEN), ForwardClock(), CONFIG_MAPS, "n", {})
    with pytest.raises(Permanent, match="Forbidden"):
        async for _ in watch.follow(raises_permanent=True):
            pass


def test_nothing_is_logged_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that uses this library prints its own results there."""
    structlog.reset_defaults()
    for module in (api_watch, informer, events, membership):
        module.log.warning("watch interrupted")
    assert capsys.readouterr().out == ""


async def test_a_list_that_fails_is_tried_again() -> None:
    assert await reports_of(Script(Retry("Http503"), NotFound("no CRD yet"), FIRST)) == START


async def test_waits_longer_each_time_and_briefly_again_after_news() -> None:
    clock = ForwardClock()
    faults = [Retry("Http503")] * 7
    await reports_of(Script(FIRST, *faults, [event("ADDED", "c", 6)], *faults[:2]), clock)
    expected = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 0.2, 0.4, 0.8]
    assert [pytest.approx(wait, rel=0.21) for wait in expected] == clock.slept


async def test_lines_may_be_cut_anywhere() -> None:
    text = event("ADDED", "c", 6) + event("ADDED", "d", 7)
    assert await reports_of(Script(FIRST, [text[i : i + 7] for i in range(0, len(text), 7)])) == [
        *START,
        "ADDED c",
        "ADDED d",
    ]


async def test_half_a_line_at_the_end_is_dropped() -> None:
    script = Script(FIRST, [event("ADDED", "c", 6), event("ADDED", "d", 7)[:20]], [event("ADDED", "d", 7)])
    assert await reports_of(script) == [*START, "ADDED c", "ADDED d"]


DIFFERENCES = [
    ("nothing", [obj("a", 1)], [obj("a", 1)], []),
    ("new", [], [obj("a", 1)], [("ADDED", "a")]),
    ("gone", [obj("a", 1)], [], [("DELETED", "a")]),
    ("changed", [obj("a", 1)], [obj("a", 2)], [("MODIFIED", "a")]),
    ("re-created", [obj("a", 1, "old")], [obj("a", 2, "new")], [("DELETED", "a"), ("ADDED", "a")]),
]


@pytest.mark.parametrize(
    ("name", "known", "listed", "expected"), DIFFERENCES, ids=[d[0] for d in DIFFERENCES]
)
def test_differences(name: str, known: Objects, listed: Objects, expected: list[tuple[str, str]]) -> None:
    changes = differences({key_of(o): o for o in known}, {key_of(o): o for o in listed}, "99")
    assert [(change.type, key_of(change.obj).name) for change in changes] == expected


def test_a_deletion_found_by_listing_is_newer_than_what_was_known() -> None:
    known = {key_of(o): o for o in (obj("a", 1), obj("b", 2, "old"))}
    listed = {key_of(o): o for o in (obj("b", 7, "new"),)}
    changes = differences(known, listed, "99")
    assert changes == [
        Change("DELETED", obj("a", 99)),
        Change("DELETED", obj("b", 7, "old")),
        Change("ADDED", obj("b", 7, "new")),
    ]
    assert all(change.listed for change in changes)


async def test_a_watch_event_is_not_listed() -> None:
    script = Script(FIRST, [event("MODIFIED", "a", 6)])
    listed: list[bool] = []

    async def follow() -> None:
        async for change in ApiWatch(script, ForwardClock(), CONFIG_MAPS, "n", {}).follow():
            listed.append(change.listed)

    task = asyncio.create_task(follow())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert listed == [True, True, False]


async def test_of_each_object_only_what_is_kept_is_reported_and_remembered() -> None:
    """This holds also for an object whose deletion a later list shows."""
    script = Script(FIRST, [event("MODIFIED", "a", 6), failure(410, "Expired")], ([obj("a", 7)], "20"))
    reported: list[Object] = []

    def keep(found: Object) -> Object:
        return {"metadata": found["metadata"], "kept": True}

    async def follow() -> None:
        async for change in ApiWatch(script, ForwardClock(), CONFIG_MAPS, "n", {}, keep).follow():
            reported.append(change.obj)

    task = asyncio.create_task(follow())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [key_of(found).name for found in reported] == ["a", "b", "a", "b", "a"]
    assert all(set(found) == {"metadata", "kept"} for found in reported)


ABSENT = NotFound("404 page not found")


async def test_an_absent_resource_is_reported_and_looked_for_again_within_5_seconds() -> None:
    clock = ForwardClock()
    script = Script(*[ABSENT] * 8, FIRST, [event("MODIFIED", "a", 6)], ABSENT, FIRST)
    reported = await reports_of(script, clock, optional=True)
    assert reported == ["absent"] * 8 + [*START, "MODIFIED a", "absent", *START]
    assert max(clock.slept) <= 5
    assert script.asked[8:] == ["list", "watch from 5", "watch from 6", "list", "watch from 5"]
