"""A pass records a status before it publishes the facts. One failure does not hide other results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from paddlewheel.bus.streams import JOBS
from paddlewheel.contracts.announcements import Announcements, parse_announcements, render_announcements
from paddlewheel.contracts.conditions import RECONCILE_FAILED, Conditions, parse_conditions, render_conditions
from paddlewheel.contracts.generated.jobs_v1 import JobAccepted, JobDeleted, JobFailed, JobRestarted
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import milliseconds_stamp, parse_stamp
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, Object
from paddlewheel.operator.domain.facts import Fact, FactTable
from paddlewheel.operator.domain.plan import MESSAGE_LIMIT, Action, Applied, Create, KubernetesEvent, Plan
from paddlewheel.operator.executor import Executor
from paddlewheel.operator.failures import Owner
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS, PUBLISH_RETRY_INTERVAL_SECONDS, Count
from paddlewheel.operator.reconciler import Reconciler
from paddlewheel.operator.serve import Control, Host, Operator
from paddlewheel.operator.settings import OperatorSettings
from paddlewheel.operator.watch import Watch
from paddlewheel.testkit.harness import Fakes, Harness
from paddlewheel.testkit.operators import OperatorReplica

FINALIZER = "example.org/toy"
RELEASE_GRACE_SECONDS = 600.0
KEY = Key("default", "toy")


@dataclass(frozen=True)
class ToyStatus:
    """Status of the toy kind: phase, restarts and reason follow the spec."""

    phase: str = ""
    restarts: int = 0
    reason: str = ""
    conditions: Conditions = ()
    announcements: Announcements = ()

    def render(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "restarts": self.restarts,
            "reason": self.reason,
            "conditions": render_conditions(self.conditions),
            "announcements": render_announcements(self.announcements),
        }


@dataclass(frozen=True)
class Toy:
    """One object as observed."""

    obj: Object
    status: ToyStatus

    @property
    def phase(self) -> str:
        return str((self.obj.get("spec") or {}).get("phase", ""))


FACTS: FactTable[ToyStatus] = FactTable(
    Fact(JobAccepted, lambda s: s.phase != "Deleted", lambda _, ref: JobAccepted(job=ref)),
    Fact(
        JobRestarted,
        lambda s: s.restarts > 0,
        lambda s, ref: JobRestarted(job=ref, reason=s.reason),
        attempt=lambda s: s.restarts - 1,
    ),
    Fact(JobFailed, lambda s: s.phase == "Failed", lambda _, ref: JobFailed(job=ref)),
    Fact(JobDeleted, lambda s: s.phase == "Deleted", lambda _, ref: JobDeleted(job=ref)),
)


class ToyKind:
    """Creates `spec.pods` pods. `spec.bug` causes a bug in the controller."""

    facts = FACTS

    def __init__(self, store: Informer, executor: Executor) -> None:
        self._store = store
        self._executor = executor
        self.forgotten: list[str] = []

    async def observe(self, key: Key) -> Toy | None:
        obj = self._store.get(key)
        if obj is None:
            return None
        if obj["spec"].get("unreadable"):
            raise Permanent("InvalidSpec", "spec.unreadable: is true")
        status = obj.get("status") or {}
        recorded = ToyStatus(
            status.get("phase", ""),
            status.get("restarts", 0),
            status.get("reason", ""),
            parse_conditions(status.get("conditions")),
            parse_announcements(status.get("announcements")),
        )
        return Toy(obj, recorded)

    def plan(self, seen: Toy, now: datetime) -> Plan[ToyStatus]:
        metadata = seen.obj["metadata"]
        if seen.obj["spec"].get("bug"):
            raise TypeError("a bug")
        if seen.obj["spec"].get("refuse"):
            raise Permanent("InvalidSpec", "spec.refuse: is true")
        if deleted := parse_stamp(metadata.get("deletionTimestamp")):
            status = _declared(replace(seen.status, phase="Deleted"), now)
            return Plan(
                status,
                release={"finalizers": []},
                release_anyway=now >= deleted + timedelta(seconds=RELEASE_GRACE_SECONDS),
            )
        spec = seen.obj["spec"]
        status = replace(seen.status, phase=seen.phase, restarts=spec.get("restarts", 0))
        status = _declared(replace(status, reason=spec.get("reason", "")), now)
        finalizer = None if metadata.get("finalizers") else {"finalizers": [FINALIZER]}
        is_new = seen.status.phase != seen.phase
        events = (KubernetesEvent("Normal", "Scaled", seen.phase),) if is_new else ()
        return Plan(status, _pods(seen), finalizer, events=events, requeue_after=60.0)

    async def apply(self, seen: Toy, todo: Plan[ToyStatus]) -> Applied:
        owner = Owner(seen.obj["metadata"]["uid"], seen.obj["metadata"]["generation"])
        return await self._executor.apply(owner, todo.actions)

    def conclude(self, seen: Toy, todo: Plan[ToyStatus], applied: Applied, now: datetime) -> Plan[ToyStatus]:
        return todo

    def case(self, seen: Toy, status: ToyStatus) -> ToyStatus:
        return status

    def recorded(self, seen: Toy, status: ToyStatus) -> None:
        return None

    def forget(self, key: Key, uid: str) -> None:
        self.forgotten.append(uid)


def _declared(status: ToyStatus, now: datetime) -> ToyStatus:
    return replace(status, announcements=FACTS.declare(status.announcements, status, milliseconds_stamp(now)))


def _pods(seen: Toy) -> tuple[Action, ...]:
    uid = seen.obj["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": True}
    names = [f"toy-{n}" for n in range(seen.obj["spec"].get("pods", 0))]
    return tuple(
        Create("Pod", {"metadata": {"namespace": "default", "name": n, "ownerReferences": [owner]}})
        for n in names
    )


class ToyHarness(Harness[OperatorReplica]):
    """A minimal controller of one kind."""

    def __init__(self, fakes: Fakes | None = None, count: Count = lambda *_: None) -> None:
        self._count = count
        self.kind: ToyKind
        self.reconciler: Reconciler[Toy, ToyStatus, ToyStatus]
        super().__init__(self._build_replica, JOBS, fakes)

    def _build_replica(self, fakes: Fakes, wake_of: Any) -> OperatorReplica:
        return OperatorReplica(fakes, wake_of, self._build_operator, PADDLE_JOBS)

    def _build_operator(self, host: Host) -> Operator:
        watch = Watch({"PaddleJob": Informer(host.api, PADDLE_JOBS, clock=host.clock)})
        operator = Operator("toy", OperatorSettings(replicas_share=False), host, watch=watch)
        outbox = operator.outbox(JOBS, self._count)
        executor = Executor(host.api, {"Pod": PODS}, watch.stores, host.clock)
        self.kind = ToyKind(watch.of("PaddleJob"), executor)
        self.reconciler = Reconciler(self.kind, operator.outside("PaddleJob", outbox, FINALIZER))
        controller = operator.control("PaddleJob", self.reconciler)
        operator.background(lambda: watch.run(lambda _, change: _wake(controller, change.obj)))
        return operator

    async def make(self, **spec: Any) -> Key:
        return await self.create({"metadata": {"namespace": "default", "name": "toy"}, "spec": spec})

    async def announced(self) -> list[bool]:
        return [a["announced"] for a in (await self.status(KEY))["announcements"]]


def _wake(controller: Control, obj: Object) -> None:
    controller.wake(Key(obj["metadata"]["namespace"], obj["metadata"]["name"]))


@pytest.fixture
async def toy() -> AsyncIterator[ToyHarness]:
    async with ToyHarness().running() as harness:
        assert isinstance(harness, ToyHarness)
        yield harness


async def test_a_pass_records_publishes_and_then_rests(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    assert toy.facts() == ["JobAccepted"]
    assert (await toy.get(KEY))["metadata"]["finalizers"] == [FINALIZER]
    assert [e.reason for e in await toy.kubernetes_events()] == ["Scaled"]
    await toy.advance(CONFIRM_GRACE_SECONDS)
    with toy.counted_writes() as writes:
        await toy.advance(3600)
    assert not writes
    assert toy.facts() == ["JobAccepted"]


async def test_a_conflict_leaves_no_fact_that_was_never_recorded(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    await toy.patch(KEY, {"spec": {"phase": "Failed"}})
    with toy.failing(Conflict("modified"), "patch-status", PADDLE_JOBS, times=1), pytest.raises(Conflict):
        await toy.reconcile(KEY)
    # Meanwhile the object has changed.
    await toy.patch(KEY, {"spec": {"phase": "Running"}})
    await toy.drain_queue()
    assert toy.facts() == ["JobAccepted"]


async def test_facts_name_the_version_that_was_decided_on(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    published: Any = toy.published[0].data
    # The finalizer made this version; the write of the status, with the fact, makes the next.
    assert published.job.resource_version == "2"
    assert (await toy.get(KEY))["metadata"]["resourceVersion"] == "3"


async def test_the_confirmation_goes_along_with_the_next_write(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    assert await toy.announced() == [False]
    await toy.patch(KEY, {"spec": {"phase": "Failed"}})
    with toy.counted_writes() as writes:
        await toy.drain_queue()
    assert writes == {("patch-status", "paddlejobs"): 1}
    assert await toy.announced() == [True, False]


async def test_the_confirmation_is_written_alone_when_nothing_else_is(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    with toy.counted_writes() as writes:
        await toy.advance(CONFIRM_GRACE_SECONDS)
    assert writes == {("patch-status", "paddlejobs"): 1}
    assert await toy.announced() == [True]


async def test_a_bus_that_is_down_holds_nothing_up_and_loses_nothing(toy: ToyHarness) -> None:
    with toy.bus_down():
        await toy.make(phase="Failed", pods=2)
        await toy.drain_queue()
        assert len(await toy.names(PODS)) == 2
        assert (await toy.status(KEY))["phase"] == "Failed"
    await toy.advance(PUBLISH_RETRY_INTERVAL_SECONDS)
    assert toy.facts() == ["JobAccepted", "JobFailed"]


async def test_killed_between_record_and_publish_the_next_process_publishes(toy: ToyHarness) -> None:
    with toy.bus_down():
        await toy.make(phase="Running")
        await toy.drain_queue()
        await toy.restart()
    await toy.drain_queue()
    assert toy.facts() == ["JobAccepted"]


async def test_killed_between_publish_and_confirmation_nothing_is_stored_twice(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    await toy.clock.advance(3600)
    await toy.restart()
    await toy.drain_queue()
    await toy.advance(CONFIRM_GRACE_SECONDS)
    assert toy.facts() == ["JobAccepted"]
    assert await toy.announced() == [True]


async def test_a_childs_trouble_keeps_the_status_from_nothing(toy: ToyHarness) -> None:
    with toy.failing(Retry("ServerError"), "create", PODS, name="toy-1"):
        await toy.make(phase="Running", pods=3)
        await toy.drain_queue()
        assert await toy.names(PODS) == ["toy-0", "toy-2"]
        assert toy.facts() == ["JobAccepted"]
    await toy.advance(1.0)
    assert len(await toy.names(PODS)) == 3


async def test_the_earliest_wish_decides_about_the_next_pass(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    assert (await toy.reconcile(KEY)).requeue_after == 60.0
    await toy.advance(CONFIRM_GRACE_SECONDS)
    assert (await toy.reconcile(KEY)).requeue_after == 60.0


async def test_a_bug_becomes_a_condition_and_goes_with_it(toy: ToyHarness) -> None:
    await toy.make(phase="Running", bug=True)
    for _ in range(2):
        with pytest.raises(TypeError):
            await toy.reconcile(KEY)
    condition = await toy.condition(KEY, RECONCILE_FAILED)
    assert (condition["status"], condition["reason"]) == ("True", "InternalError")
    assert "TypeError" in condition["message"]
    await toy.patch(KEY, {"spec": {"bug": False}})
    toy.forget_woken()
    await toy.settle(KEY)
    assert (await toy.condition(KEY, RECONCILE_FAILED))["status"] == "False"


async def test_a_bug_is_reported_once_not_at_every_pass(toy: ToyHarness) -> None:
    await toy.make(phase="Running", bug=True)
    with pytest.raises(TypeError):
        await toy.reconcile(KEY)
    with toy.counted_writes() as writes, pytest.raises(TypeError):
        await toy.reconcile(KEY)
    assert not writes


async def test_an_object_that_cannot_be_read_says_so(toy: ToyHarness) -> None:
    await toy.make(phase="Running", refuse=True)
    with pytest.raises(Permanent):
        await toy.reconcile(KEY)
    condition = await toy.condition(KEY, RECONCILE_FAILED)
    assert (condition["reason"], condition["message"]) == ("InvalidSpec", "spec.refuse: is true")


async def test_an_object_that_cannot_be_parsed_can_be_deleted_and_an_event_says_what_was_not_done(
    toy: ToyHarness,
) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    await toy.patch(KEY, {"metadata": {"finalizers": [FINALIZER, "example.org/foreign"]}})
    await toy.patch(KEY, {"spec": {"unreadable": True}})
    with pytest.raises(Permanent):
        await toy.reconcile(KEY)
    assert FINALIZER in (await toy.get(KEY))["metadata"]["finalizers"]
    await toy.delete(KEY)
    toy.forget_woken()
    await toy.reconcile(KEY)
    assert (await toy.get(KEY))["metadata"]["finalizers"] == ["example.org/foreign"]
    [event] = [e for e in await toy.kubernetes_events() if e.reason == "ReleasedUnread"]
    assert event.type == "Warning"
    assert "spec.unreadable" in event.message
    assert toy.facts() == ["JobAccepted"]
    # The object still has a finalizer of another controller. It is not written repeatedly.
    with toy.counted_writes() as writes, pytest.raises(Permanent):
        await toy.reconcile(KEY)
    assert ("patch", "paddlejobs") not in writes


async def test_a_refusal_of_the_api_server_releases_no_finalizer(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    with toy.failing(Permanent("Forbidden", "no"), "patch-status", PADDLE_JOBS):
        await toy.delete(KEY)
        toy.forget_woken()
        with pytest.raises(Permanent):
            await toy.reconcile(KEY)
        assert (await toy.get(KEY))["metadata"]["finalizers"] == [FINALIZER]


async def test_an_object_refused_in_many_words_holds_their_beginning(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    refusal = Permanent("Forbidden", "policy says: " + "no " * 40_000)
    await toy.patch(KEY, {"spec": {"phase": "Failed"}})
    with toy.failing(refusal, "patch-status", PADDLE_JOBS, times=1), pytest.raises(Permanent):
        await toy.settle(KEY)
    condition = await toy.condition(KEY, RECONCILE_FAILED)
    assert condition["reason"] == "FailedUpdate"
    assert condition["message"].startswith("Forbidden: policy says: no ")
    assert len(condition["message"]) == MESSAGE_LIMIT


async def test_objects_of_other_replicas_and_former_lives_are_forgotten(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    first = (await toy.get(KEY))["metadata"]["uid"]
    toy.reconciler._active.add(KEY)
    toy.reconciler.keep(lambda _: False)
    toy.reconciler._active.discard(KEY)
    toy.reconciler.keep(lambda _: True)
    assert toy.kind.forgotten == []
    toy.reconciler.keep(lambda _: False)
    assert toy.kind.forgotten == [first]
    await toy.drain_queue()
    await toy.reconcile(KEY)
    # The object is deleted and created again between two passes.
    del toy.cluster._objects[PADDLE_JOBS][KEY]
    await toy.make(phase="Running")
    second = (await toy.get(KEY))["metadata"]["uid"]
    toy.reconciler._remember(KEY, second)
    assert toy.kind.forgotten == [first, first]


async def test_the_last_fact_is_recorded_and_published_before_the_object_goes(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    with toy.bus_down():
        await toy.delete(KEY)
        await toy.drain_queue()
        assert (await toy.status(KEY))["phase"] == "Deleted"
    await toy.advance(PUBLISH_RETRY_INTERVAL_SECONDS)
    assert toy.facts() == ["JobAccepted", "JobDeleted"]
    assert not await toy.exists(KEY)
    await toy.drain_queue()
    assert toy.kind.forgotten


async def test_a_deleted_object_waits_for_the_bus_only_so_long(toy: ToyHarness) -> None:
    await toy.make(phase="Running")
    await toy.drain_queue()
    with toy.bus_down():
        await toy.delete(KEY)
        await toy.drain_queue()
        for _ in range(int(RELEASE_GRACE_SECONDS / PUBLISH_RETRY_INTERVAL_SECONDS) + 1):
            await toy.advance(PUBLISH_RETRY_INTERVAL_SECONDS)
        assert not await toy.exists(KEY)
