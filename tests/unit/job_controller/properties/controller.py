"""One process of the service, one call of the API at a time, so that it can be cut off between any two."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from typing import Any

from tests.unit.job_controller.properties.kubelet import Kubelet
from tests.unit.job_controller.properties.server import KEY, KEYS, KINDS, ModelClock, Server

from job_controller.app import claim
from job_controller.core import names
from job_controller.core.conclude import conclude
from job_controller.core.facts import FACTS, Case
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus, Plan
from job_controller.core.model import AUTO, Observed, Options
from job_controller.core.plan import plan
from job_controller.observe import JobObserver
from job_controller.watch import Wakes, make_watch
from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts.announcements import Announcement, Announcements, confirm, pending
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleSetReady
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.merge_patch import merge_patch
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent, Retry
from paddlewheel.kube.objects import uid_of, version_of
from paddlewheel.kube.ports import CONFIG_MAPS, LEASES, SAMPLE_SETS, Change, Object, Resource
from paddlewheel.operator.domain.plan import Action, Applied, Create, Delete, Patch, Trouble, earliest
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.operator.reads import Reads
from paddlewheel.operator.reconciler import object_ref
from paddlewheel.operator.watch import Watch
from paddlewheel.testkit.memory_cluster import MemoryCluster

BURST_GRACE_SECONDS = 0.25
"""A wake that only waits for other wakes of its burst counts as due."""
_RETRY_INTERVAL_SECONDS = 1.0
_PUBLISH_INTERVAL_SECONDS = 5.0
DATA_SET = Key("default", "data")
"""The data set of all jobs."""


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The same loop for all observations: a new one for each would take longer than the observation."""
    return asyncio.new_event_loop()


def _report() -> Delivery:
    """A fact about the data set."""
    ref, at = ObjectRef(namespace=DATA_SET.namespace, name=DATA_SET.name, uid="s-1"), datetime.now(UTC)
    ready = SampleSetReady(sample_set=ref, partitions=2)
    event = make_event(ready, id="s-1/0", source="test", namespace=ref.namespace, uid=ref.uid, time=at)
    return Delivery(event, subject="", attempt=1, sequence=1, published_at=at)


class Surroundings:
    """The parts of the world that are neither jobs nor pods."""

    def __init__(self) -> None:
        self.bus_up = True
        self.sample_set: Object | None = None
        self.readable = True
        """The API server answers reads of the data set."""
        self.refused: set[tuple[type, str]] = set()
        """Actions by kind that the API server refuses, for example because of a quota."""
        self.published: dict[str, Any] = {}
        """Facts by id, in order: the content of the bus."""
        self.given_up: set[str] = set()
        """Uids of jobs that were released with facts that the bus does not have."""


class ModelCluster(MemoryCluster):
    """The objects that an observation reads, because they are not watched."""

    def __init__(self, server: Server, around: Surroundings, kubelet: Kubelet) -> None:
        super().__init__()
        self._server, self._around, self._kubelet = server, around, kubelet

    async def get(self, resource: Resource, key: Key) -> Object:
        if resource is LEASES:
            return self._kubelet.lease_of(key)
        if resource is CONFIG_MAPS:
            return self._server.get(names.CONFIG_MAP, key)
        if resource is SAMPLE_SETS:
            return self._read_sample_set(key)
        return await super().get(resource, key)

    def _read_sample_set(self, key: Key) -> Object:
        if not self._around.readable:
            raise Retry("InternalError", "etcd is slow")
        if self._around.sample_set is None:
            raise NotFound(f"SampleSet {key}")
        return self._around.sample_set

    async def read_log(self, pod: Key, *, container: str, lines: int, limit_bytes: int) -> str:
        return "the last lines\n"


class Controller:
    """Caches, and the passes of each job. A crash is a new Controller."""

    def __init__(
        self, server: Server, clock: ModelClock, around: Surroundings, options: Options, kubelet: Kubelet
    ) -> None:
        self._server = server
        cluster = ModelCluster(server, around, kubelet)
        self.watch = make_watch(cluster, "", clock, AUTO)
        self._observer = JobObserver(self.watch, cluster, Reads(clock), clock, options, AUTO)
        self._wakes = Wakes(self.watch, self._wake, clock)
        outside = Outside(server, clock, around, options, self.watch, self._observer)
        self.jobs = {key: Passes(key, outside) for key in KEYS}
        self.at_work = self.jobs[KEY]
        """The passes of the job that had the last call."""
        self._list()

    def _list(self) -> None:
        """A process begins with what the API server holds."""
        for kind in KINDS:
            self._server.events[kind].clear()
            for obj in list(self._server.objects[kind].values()):
                self.watch.of(kind).apply(Change("ADDED", obj, listed=True))

    def deliver(self, kind: str, count: int | None = None) -> None:
        """The watch reports the next changes of one kind; None means all."""
        events = self._server.events[kind]
        for _ in range(len(events) if count is None else min(count, len(events))):
            change = events.popleft()
            if self.watch.of(kind).apply(change):
                self._observer.heard(kind, change)
                self._wakes.changed(kind, change)

    def deliver_all(self) -> None:
        for kind in KINDS:
            self.deliver(kind)

    def retry(self) -> None:
        """All jobs are woken."""
        for key in self.jobs:
            self._wake(key, 0.0)

    def report_data_set(self) -> None:
        """The bus reports that the data set has changed."""
        self._observer.received(_report())
        loop().run_until_complete(self._wakes.sample_set_changed(_report()))

    def _wake(self, key: Key, delay: float) -> None:
        self.jobs[key].wake(delay)

    @property
    def due_in(self) -> float | None:
        """Seconds until the next pass, None while nothing asks for one."""
        return earliest(*(job.due_in for job in self.jobs.values()))

    @property
    def woken_in(self) -> float | None:
        """Seconds until the pass that a change has asked for, which may wait for others of its job."""
        return earliest(*(job.woken_in for job in self.jobs.values()))

    @property
    def is_due(self) -> bool:
        return any(job.is_due for job in self.jobs.values())

    @property
    def is_working(self) -> bool:
        return any(job.is_working for job in self.jobs.values())

    def step(self, chance: int = 0) -> None:
        """One call of the API, for one of the jobs that are due; the first one of a new pass when none is."""
        due = [job for job in self.jobs.values() if job.is_due] or [self.jobs[KEY]]
        self.at_work = due[chance % len(due)]
        self.at_work.step()

    def end_call(self) -> None:
        """The call under way when the process was killed arrives all the same."""
        self.at_work = next(job for job in self.jobs.values() if job.is_working)
        self.at_work.step()

    def look_at_all(self) -> None:
        """A whole pass over each job."""
        for job in self.jobs.values():
            self.at_work = job
            job.finish()


@dataclass(frozen=True)
class Outside:
    """All passes of a process share this."""

    server: Server
    clock: ModelClock
    around: Surroundings
    options: Options
    watch: Watch
    observer: JobObserver


class Passes:
    """The wakes of one job and the pass under way.

    `seen` is what the pass under way was planned from.
    """

    def __init__(self, key: Key, outside: Outside) -> None:
        self.key = key
        self._server, self._clock, self._around = outside.server, outside.clock, outside.around
        self._options, self.watch, self._observer = outside.options, outside.watch, outside.observer
        self._woken: list[float] = [self._clock.monotonic()]
        self._wish: float | None = None
        self._unconfirmed: dict[Announcement, float] = {}
        self._uid = ""
        self._pass: Iterator[None] | None = None
        self.seen: Observed | None = None

    def wake(self, delay: float) -> None:
        self._woken.append(self._clock.monotonic() + delay)

    @property
    def due_in(self) -> float | None:
        """Seconds until the next pass, None while nothing asks for one."""
        times = [*self._woken, *(() if self._wish is None else (self._wish,))]
        return min(times) - self._clock.monotonic() if times else None

    @property
    def woken_in(self) -> float | None:
        return min(self._woken) - self._clock.monotonic() if self._woken else None

    @property
    def is_due(self) -> bool:
        return self._pass is not None or (self.due_in is not None and self.due_in <= BURST_GRACE_SECONDS)

    @property
    def is_working(self) -> bool:
        return self._pass is not None

    def step(self) -> None:
        """One call of the API, the first one of a new pass when none is under way."""
        if self._pass is None:
            self._pass = self._run_pass()
        try:
            next(self._pass)
        except StopIteration:
            self._pass = None
        except Conflict:
            self._pass = None
            self._woken.append(self._clock.monotonic())

    def finish(self) -> None:
        """The pass under way to its end, or a new one."""
        self.step()
        while self._pass is not None:
            self.step()

    def _observe(self) -> Observed | None:
        seen = loop().run_until_complete(self._observer.observe(self.key))
        uid = seen.job.uid if seen else ""
        if self._uid not in ("", uid):
            self.forget()
        self._uid = uid
        return seen

    def forget(self) -> None:
        """The job is gone, or belongs to another replica."""
        self._observer.forget_job(self.key, self._uid)
        self._uid, self._wish = "", None
        self._unconfirmed.clear()

    def _run_pass(self) -> Iterator[None]:
        self._woken = [at for at in self._woken if at > self._clock.monotonic() + BURST_GRACE_SECONDS]
        self.seen = seen = self._observe()
        if seen is None:
            return
        now = self._clock.now()
        todo = plan(seen, self._options, now)
        yield
        obj = seen.obj
        if todo.metadata is not None:
            obj = self._patch_own(obj, {"metadata": dict(todo.metadata)})
            yield
        elif todo.verify:
            self._verify(obj)
            yield
        applied = yield from self._apply(seen, todo.actions)
        todo = conclude(seen, todo, applied, now)
        yield from self._finish(seen, obj, todo, applied)

    def _finish(self, seen: Observed, obj: Object, todo: Plan, applied: Applied) -> Iterator[None]:
        wanted = seen.status if todo.status is None else _with_messages(seen, obj, todo.status)
        obj, recorded = self._record(seen, obj, wanted)
        if recorded != seen.status:
            self._observer.recorded(seen, recorded)
        yield
        is_settled = self._publish(obj, Case(seen.job, recorded), recorded.announcements)
        yield
        if todo.release is not None and (is_settled or todo.release_anyway):
            self._patch_own(obj, {"metadata": dict(todo.release)})
            if not is_settled:
                self._around.given_up.add(uid_of(obj))
            self._wish = None
            return
        if todo.expiry is not None and is_settled:
            self._server.delete(names.JOB, self.key, uid_of(obj))
            self._wish = None
            return
        wishes = (todo.requeue_after, applied.retry_after, self._outbox_wish(is_settled))
        waits = [wish for wish in wishes if wish is not None]
        self._wish = self._clock.monotonic() + min(waits) if waits else None

    def _verify(self, obj: Object) -> None:
        now = self._server.objects[names.JOB].get(self.key)
        if now is None or version_of(now) != version_of(obj):
            raise Conflict("has been modified")

    def _apply(self, seen: Observed, actions: Iterable[Action]) -> Generator[None, None, Applied]:
        """Execute the actions one by one. The real Executor runs actions of a kind at the same time."""
        created: list[str] = []
        troubles: list[Trouble] = []
        for _, group in groupby(actions, key=lambda a: (type(a), a.kind)):
            troubled = {t.kind for t in troubles}
            for action in [a for a in group if not troubled.intersection(a.needs)]:
                trouble = self._perform(seen.job, action)
                if trouble is not None:
                    troubles.append(trouble)
                elif isinstance(action, Create):
                    created.append(action.kind)
                yield
        applied = Applied(tuple(created), tuple(troubles), _RETRY_INTERVAL_SECONDS if troubles else None)
        self._observer.applied(seen, applied)
        return applied

    def _perform(self, job: Job, action: Action) -> Trouble | None:
        verbs = {Create: "create", Patch: "patch", Delete: "delete"}
        if (type(action), action.kind) in self._around.refused:
            verb: Any = verbs[type(action)]
            return Trouble(verb, action.kind, action.key, "Forbidden", "exceeded quota", is_refusal=True)
        match action:
            case Create():
                return self._create(job, action)
            case Patch():
                self._patch(action)
            case Delete():
                self._server.delete(action.kind, action.key, action.uid)
                self.watch.of(action.kind).deleting(action.key, action.uid, vanishes=action.vanishes)
        return None

    def _create(self, job: Job, action: Create) -> Trouble | None:
        if action.kind == names.KEPT_LOGS:
            return None
        try:
            answer = self._server.create(action.kind, action.render())
        except Permanent as error:
            return Trouble("create", action.kind, action.key, error.reason, error.message, is_refusal=True)
        except AlreadyExists:
            answer = self._server.get(action.kind, action.key)
            if refusal := claim(action.kind, answer, job.uid):
                return Trouble("create", action.kind, action.key, refusal.reason, refusal.message, True)
        self.watch.of(action.kind).wrote(answer)
        return None

    def _patch(self, action: Patch) -> None:
        try:
            answer = self._server.patch(action.kind, action.key, action.patch, action.uid)
        except NotFound:
            return
        self.watch.of(action.kind).wrote(answer)

    def _patch_own(self, obj: Object, patch: Mapping[str, Any]) -> Object:
        try:
            answer = self._server.patch(names.JOB, self.key, patch, uid_of(obj), version_of(obj))
        except NotFound as error:
            raise Conflict("is gone") from error
        self.watch.of(names.JOB).wrote(answer)
        return answer

    def _record(self, seen: Observed, obj: Object, wanted: JobStatus) -> tuple[Object, JobStatus]:
        if wanted == seen.status and not self._is_confirmation_due():
            return obj, wanted
        facts = confirm(wanted.announcements, self._unconfirmed)
        confirmed = replace(wanted, announcements=facts)
        if patch := merge_patch(obj.get("status") or {}, confirmed.render()):
            obj = self._patch_own(obj, {"status": patch})
        return obj, confirmed

    def _is_confirmation_due(self) -> bool:
        wish = self._outbox_wish(True)
        return wish is not None and wish <= 0.0

    def _outbox_wish(self, is_settled: bool) -> float | None:
        if not is_settled:
            return _PUBLISH_INTERVAL_SECONDS
        since = min(self._unconfirmed.values(), default=None)
        return None if since is None else max(0.0, since + CONFIRM_GRACE_SECONDS - self._clock.monotonic())

    def _publish(self, obj: Object, case: Case, recorded: Announcements) -> bool:
        """Whether the bus holds every recorded fact."""
        waiting = pending(confirm(recorded, self._unconfirmed))
        if waiting and not self._around.bus_up:
            return False
        for fact in waiting:
            message = FACTS.render(fact, case, object_ref(obj))
            self._around.published.setdefault(fact.event_id(uid_of(obj)), message)
            self._unconfirmed[fact] = self._clock.monotonic()
        still = set(pending(recorded))
        self._unconfirmed = {f: at for f, at in self._unconfirmed.items() if f in still}
        return True


def _with_messages(seen: Observed, obj: Object, status: JobStatus) -> JobStatus:
    facts = FACTS.record(status.announcements, Case(seen.job, status), object_ref(obj))
    return replace(status, announcements=facts)
