"""Both kinds as `paddlewheel.operator.reconciler` runs them. What to do is decided in `domain`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from dataset_controller.apply import Applier
from dataset_controller.domain.conclude import conclude
from dataset_controller.domain.names import JobPhase
from dataset_controller.domain.samplejob import facts as job_facts
from dataset_controller.domain.samplejob.model import JobPlan, JobStatus, ObservedJob
from dataset_controller.domain.samplejob.plan import plan as plan_job
from dataset_controller.domain.sampleset import facts as set_facts
from dataset_controller.domain.sampleset.model import ObservedSet, RuntimeConfig, SetPlan, SetStatus
from dataset_controller.domain.sampleset.plan import plan as plan_set
from dataset_controller.domain.sampleset.policies.warmup import hold_next
from dataset_controller.observe import Observer
from dataset_controller.orphans import Orphans
from dataset_controller.timing import FIGURES_WRITE_INTERVAL_SECONDS, PROGRESS_WRITE_INTERVAL_SECONDS
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.operator.domain.plan import Applied
from paddlewheel.operator.failures import Owner


class Pace:
    """Keeps writes of figures that change all the time apart. A restart costs one write more."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._written: dict[Key, float] = {}

    def is_due(self, key: Key) -> bool:
        """Enough time has passed since the last write."""
        return self._clock.monotonic() >= self._written.get(key, float("-inf")) + self._seconds

    def mark(self, key: Key) -> None:
        """Written now."""
        self._written[key] = self._clock.monotonic()

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._written.pop(key, None)


class SampleSetKind:
    """Brings one SampleSet's children, runs and status to what its spec asks for."""

    facts = set_facts.FACTS

    def __init__(
        self, observer: Observer, applier: Applier, orphans: Orphans, config: RuntimeConfig, clock: Clock
    ) -> None:
        self._observer = observer
        self._applier = applier
        self._orphans = orphans
        self._config = config
        self._pace = Pace(FIGURES_WRITE_INTERVAL_SECONDS, clock)

    async def observe(self, key: Key) -> ObservedSet | None:
        seen = await self._observer.sample_set(key, figures_due=self._pace.is_due(key))
        if seen is None:
            await self._orphans.remove(key)
        return seen

    def plan(self, seen: ObservedSet, now: datetime) -> SetPlan:
        return plan_set(seen, self._config, now)

    async def apply(self, seen: ObservedSet, todo: SetPlan) -> Applied:
        own = seen.sample_set
        return await self._applier.apply(Owner(own.uid, own.generation), todo.actions)

    def conclude(self, seen: ObservedSet, todo: SetPlan, applied: Applied, now: datetime) -> SetPlan:
        return hold_next(seen.status, conclude(seen.status, todo, applied, seen.troubles, now), applied)

    def case(self, seen: ObservedSet, status: SetStatus) -> set_facts.Case:
        return set_facts.Case(seen, status)

    def recorded(self, seen: ObservedSet, status: SetStatus) -> None:
        if status.cache != seen.status.cache:
            self._pace.mark(seen.sample_set.key)

    def forget(self, key: Key, uid: str) -> None:
        self._pace.forget(key)
        self._observer.forget_users(uid)
        self._applier.forget(uid)


class SampleJobKind:
    """Brings one SampleJob's run and status to what its spec asks for."""

    facts = job_facts.FACTS

    def __init__(self, observer: Observer, applier: Applier, clock: Clock) -> None:
        self._observer = observer
        self._applier = applier
        self._pace = Pace(PROGRESS_WRITE_INTERVAL_SECONDS, clock)
        self._starting: set[Key] = set()
        """Jobs whose run was decided on in their last pass: others may decide before that is recorded."""

    async def observe(self, key: Key) -> ObservedJob | None:
        return await self._observer.sample_job(key, progress_due=self._pace.is_due(key))

    def plan(self, seen: ObservedJob, now: datetime) -> JobPlan:
        key = seen.job.key
        self._starting.discard(key)
        starting = frozenset(other.name for other in self._starting if other.namespace == key.namespace)
        todo = plan_job(replace(seen, starting=starting), now)
        is_new = seen.status.phase is JobPhase.NEW
        if is_new and todo.status is not None and todo.status.phase is JobPhase.PENDING:
            self._starting.add(key)
        return todo

    async def apply(self, seen: ObservedJob, todo: JobPlan) -> Applied:
        return await self._applier.apply(Owner(seen.job.uid, seen.job.generation), todo.actions)

    def conclude(self, seen: ObservedJob, todo: JobPlan, applied: Applied, now: datetime) -> JobPlan:
        return conclude(seen.status, todo, applied, (), now)

    def case(self, seen: ObservedJob, status: JobStatus) -> job_facts.Case:
        return job_facts.Case(seen, status)

    def recorded(self, seen: ObservedJob, status: JobStatus) -> None:
        if status.progress != seen.status.progress:
            self._pace.mark(seen.job.key)

    def forget(self, key: Key, uid: str) -> None:
        self._starting.discard(key)
        self._pace.forget(key)
        self._applier.forget(uid)
