"""When a trigger's events are settled: what one pass did decides, not what an earlier one left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from paddlewheel.contracts.crds.trigger import StatusEvent
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.core.errors import Conflict, Permanent
from paddlewheel.kube.ports import Object
from paddlewheel.operator.memo import Memo
from paddlewheel.operator.reconciler import Outside, Reconciler
from paddlewheel.testkit.clock import ManualClock
from trigger_controller.domain.model import Deferred, Occurrence, Trigger
from trigger_controller.domain.plan import Handled
from trigger_controller.domain.policies.deferral import Change
from trigger_controller.inbox import Inbox
from trigger_controller.memory import Memory
from trigger_controller.reconciler import TriggerKind, TriggerReconciler
from trigger_controller.timing import MESSAGE_RETRY_TIMEOUT_SECONDS

KEY = Key("default", "warm")
EVENT = Occurrence(StatusEvent(id="e-1", type="paddlewheel.datasets.v1.SampleSetReady"))


class FakeKind:
    """What passes leave behind for the settling."""

    def __init__(self) -> None:
        self.handled: dict[Key, Handled] = {}


class FakeStore:
    def get(self, key: Key) -> dict[str, Any]:
        return {"metadata": {"uid": "uid"}}


class FakeOutside:
    """What is touched when a pass has failed."""

    def __init__(self, clock: ManualClock) -> None:
        self.store, self.clock = FakeStore(), clock


def unreadable(_: Object) -> Trigger:
    raise Permanent("InvalidSpec", "spec.when: is missing")


class FakeMemory:
    def __init__(self) -> None:
        self.deferred: list[str] = []

    async def change_deferred(self, trigger_uid: str, change: Change) -> Deferred:
        self.deferred += [occurrence.id for occurrence in change.add]
        return Deferred(change.add)

    async def remember(self, trigger_uid: str, digests: tuple[str, ...]) -> None:
        return None


class SettlingHarness:
    """A trigger with one offered event; the test says how each pass goes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind = FakeKind()
        self.clock, self.memory = ManualClock(), FakeMemory()
        self.inbox = Inbox(lambda _: None, self.clock)
        self.passes: list[Callable[[], Result]] = []
        self.reconciler = TriggerReconciler(
            cast(TriggerKind, self.kind),
            cast(Outside, FakeOutside(self.clock)),
            self.inbox,
            cast(Memory, self.memory),
            Memo(unreadable),
        )

        async def run_pass(_: Any, key: Key) -> Result:
            return self.passes.pop(0)()

        monkeypatch.setattr(Reconciler, "reconcile", run_pass)
        self.offer = asyncio.ensure_future(self.inbox.offer(KEY, EVENT))

    def leave(self, *held: str) -> None:
        self.kind.handled[KEY] = Handled("uid", (), frozenset(held))


def conflicting(harness: SettlingHarness) -> Callable[[], Result]:
    def run() -> Result:
        harness.leave("e-1")
        raise Conflict("gone")

    return run


async def test_an_event_of_a_trigger_that_went_in_a_failed_pass_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = SettlingHarness(monkeypatch)
    harness.passes = [conflicting(harness), Result]
    await asyncio.sleep(0)
    with pytest.raises(Conflict):
        await harness.reconciler.reconcile(KEY)
    assert not harness.offer.done()
    # The trigger is gone: this pass finds nothing, and handles nothing.
    await harness.reconciler.reconcile(KEY)
    await harness.offer


async def test_a_refused_write_keeps_the_events_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = SettlingHarness(monkeypatch)

    def refuse() -> Result:
        harness.leave()
        raise Permanent("Forbidden", "cannot patch triggers/status")

    harness.passes = [refuse, Result]
    await asyncio.sleep(0)
    with pytest.raises(Permanent):
        await harness.reconciler.reconcile(KEY)
    assert not harness.offer.done()
    await harness.reconciler.reconcile(KEY)
    await harness.offer


@pytest.mark.parametrize("error", [Permanent("InvalidSpec", "spec.when: is missing"), KeyError("bug")])
async def test_events_of_a_trigger_that_cannot_be_dealt_with_are_deferred_after_a_while(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    harness = SettlingHarness(monkeypatch)

    def fail() -> Result:
        raise error

    harness.passes = [fail, fail, Result]
    await asyncio.sleep(0)
    with pytest.raises(type(error)):
        await harness.reconciler.reconcile(KEY)
    assert not harness.offer.done()
    await harness.clock.advance(MESSAGE_RETRY_TIMEOUT_SECONDS)
    with pytest.raises(type(error)):
        await harness.reconciler.reconcile(KEY)
    await harness.offer
    assert harness.memory.deferred == ["e-1"]
