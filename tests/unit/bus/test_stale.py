"""Which facts are older than what was handled, and that remembering it is bounded."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from paddlewheel.bus.consume.stale import NewestVersions
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.cache_v1 import RunStarted
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleJobStarted, SampleSetReady
from paddlewheel.testkit.fakes import ConsumerFakes, FakeMessage, FakeSource, running
from paddlewheel.testkit.wait import eventually

AT = datetime(2026, 1, 1, tzinfo=UTC)


def ready(version: str, uid: str = "u", about: str = "") -> Event:
    ref = ObjectRef(uid=about or uid, resource_version=version)
    return make_event(
        SampleSetReady(sample_set=ref), id=version, source="t", namespace="ns", uid=uid, time=AT
    )


@pytest.mark.parametrize(
    ("handled", "then", "stale"),
    [
        ("10", "9", True),
        ("10", "10", False),
        ("9", "10", False),
        ("010", "9", True),
        ("10", "", False),
        ("", "10", False),
        ("10", "9a", False),
        ("b", "a", False),
        ("10", "-9", False),
        ("10", "\u0669", False),
        ("1" + "0" * 39, "9", True),
        ("1" + "0" * 40, "9", False),
    ],
)
def test_whole_numbers_are_compared_and_nothing_else(handled: str, then: str, stale: bool) -> None:
    newest = NewestVersions()
    newest.handled(ready(handled))
    assert newest.is_stale(ready(then)) is stale


def test_the_newest_counts_not_the_last() -> None:
    newest = NewestVersions()
    for version in ("5", "10", "7"):
        newest.handled(ready(version))
    assert newest.is_stale(ready("8"))


def test_objects_are_distinguished_by_uid_and_kind() -> None:
    newest = NewestVersions()
    newest.handled(ready("10"))
    job = make_event(
        SampleJobStarted(sample_job=ObjectRef(uid="u", resource_version="9")),
        id="j",
        source="t",
        namespace="ns",
        uid="u",
        time=AT,
    )
    assert not newest.is_stale(ready("9", uid="other"))
    assert not newest.is_stale(job)
    assert not newest.is_stale(ready("9", uid="u", about="somebody-else"))


def test_a_fact_of_no_kubernetes_object_is_not_judged() -> None:
    newest = NewestVersions()
    event = make_event(RunStarted(), id="1", source="t", namespace="ns", uid="u", time=AT)
    newest.handled(event)
    assert not newest.is_stale(event)


def test_only_the_most_recent_objects_are_remembered() -> None:
    newest = NewestVersions(bound=2)
    for uid in ("a", "b", "a", "c"):
        newest.handled(ready("10", uid))
    assert [newest.is_stale(ready("9", uid)) for uid in ("a", "b", "c")] == [True, False, True]
    nothing = NewestVersions(bound=0)
    nothing.handled(ready("10"))
    assert not nothing.is_stale(ready("9"))


@pytest.mark.parametrize(("drop", "handled"), [(True, [1, 3]), (False, [1, 2, 3])])
async def test_a_stale_fact_is_acknowledged_unhandled_when_requested(drop: bool, handled: list[int]) -> None:
    messages = [FakeMessage(n, version=v) for n, v in ((1, "10"), (2, "9"), (3, "10"))]
    seen: list[int] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.sequence)

    wanted = Subscription("d", "PW_JOBS", (">",), drop_stale=drop)
    async with running(ConsumerFakes(), FakeSource(list(messages)), handle, wanted):
        await eventually(lambda: all(m.ends == ["ack"] for m in messages))
    assert seen == handled
