"""Observe, plan, act, publish, record, for both kinds. What to do is decided in `domain`."""

from __future__ import annotations

from dataset_controller.domain.samplejob.model import JobStatus, ObservedJob
from dataset_controller.domain.samplejob.plan import PROGRESS_SECONDS
from dataset_controller.domain.samplejob.plan import plan as plan_job
from dataset_controller.domain.samplejob.policies.facts import job_fact
from dataset_controller.domain.sampleset.model import ObservedSet, RuntimeConfig, SetStatus
from dataset_controller.domain.sampleset.plan import FIGURES_SECONDS
from dataset_controller.domain.sampleset.plan import plan as plan_set
from dataset_controller.domain.sampleset.policies.facts import set_fact
from dataset_controller.observe import Observer
from dataset_controller.performer import Outside, Performer, Tell
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.core.clock import Clock
from paddlewheel.kube.ports import SAMPLE_JOBS, SAMPLE_SETS
from paddlewheel.operator.outbox import Republished

STALE_SECONDS = 0.05
"""How soon an object is looked at again whose own last write has not come back."""


class Pace:
    """Keeps writes of moving figures apart, per object. A restart costs one write too many, no more."""

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


class SampleSetReconciler:
    """Bring one SampleSet's children, runs and status to what its spec asks for."""

    def __init__(self, observer: Observer, outside: Outside, config: RuntimeConfig) -> None:
        self._observer = observer
        self._performer = Performer(SAMPLE_SETS, outside)
        self._config = config
        self._clock = outside.clock
        self._pace = Pace(FIGURES_SECONDS, outside.clock)

    async def reconcile(self, key: Key) -> Result:
        """One full pass; safe to be cut off anywhere and begun again.

        Raises:
            Retry, Conflict: something has to be read or written again.
        """
        if self._observer.is_set_stale(key):
            return Result(STALE_SECONDS)
        seen = await self._observer.sample_set(key, figures_due=self._pace.is_due(key))
        if seen is None:
            self._pace.forget(key)
            return Result()
        todo = plan_set(seen, self._config, self._clock.now())
        result, written = await self._performer.perform(dict(seen.obj), todo, _facts_of_set(seen))
        if written and todo.status and todo.status.cache != seen.status.cache:
            self._pace.mark(key)
        return result

    async def republish(self, key: Key, everything: bool = False) -> Republished:
        """Bring back what the bus has lost of the set's facts. Raises Retry."""
        seen = await self._observer.sample_set(key, figures_due=False)
        if seen is None:
            return Republished()
        return await self._performer.republish(dict(seen.obj), seen.status, _facts_of_set(seen), everything)


class SampleJobReconciler:
    """Bring one SampleJob's run and status to what its spec asks for."""

    def __init__(self, observer: Observer, outside: Outside) -> None:
        self._observer = observer
        self._performer = Performer(SAMPLE_JOBS, outside)
        self._clock = outside.clock
        self._pace = Pace(PROGRESS_SECONDS, outside.clock)

    async def reconcile(self, key: Key) -> Result:
        """One full pass; as `SampleSetReconciler.reconcile`."""
        if self._observer.is_job_stale(key):
            return Result(STALE_SECONDS)
        seen = await self._observer.sample_job(key, progress_due=self._pace.is_due(key))
        if seen is None:
            self._pace.forget(key)
            return Result()
        todo = plan_job(seen, self._clock.now())
        result, written = await self._performer.perform(dict(seen.obj), todo, _facts_of_job(seen))
        if written and todo.status and todo.status.progress != seen.status.progress:
            self._pace.mark(key)
        return result

    async def republish(self, key: Key, everything: bool = False) -> Republished:
        """Bring back what the bus has lost of the job's facts. Raises Retry."""
        seen = await self._observer.sample_job(key, progress_due=False)
        if seen is None:
            return Republished()
        return await self._performer.republish(dict(seen.obj), seen.status, _facts_of_job(seen), everything)


def _facts_of_set(seen: ObservedSet) -> Tell[SetStatus]:
    return lambda fact, status: set_fact(fact, seen, status)


def _facts_of_job(seen: ObservedJob) -> Tell[JobStatus]:
    return lambda fact, status: job_fact(fact, seen, status)
