"""Observe, plan, act, publish, record. What to do is decided in `domain.plan`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from job_controller.domain import names
from job_controller.domain.facts import is_fact, render_fact
from job_controller.domain.model import ChildKind, Job, JobStatus, Observed, Options, Plan
from job_controller.domain.parse import parse_job
from job_controller.domain.plan import Refusal, conclude, plan
from job_controller.domain.pods import parse_pod
from job_controller.domain.policies.dataset_gate import needs_sample_set
from job_controller.domain.policies.deletion import may_go
from job_controller.domain.status import render_status, status_patch
from job_controller.metrics import Metrics
from job_controller.ports import Children, Ports
from paddlewheel.contracts.announcements import Announcement, pending
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.core.clock import Clock
from paddlewheel.core.telemetry import traceparent
from paddlewheel.operator.outbox import FactSource, Republished

T = TypeVar("T")

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
WRITES_AT_ONCE = 16
"""Children of one job written at the same time."""


async def observe_job(ports: Ports, key: Key) -> Observed | None:
    """Everything about one job, None when it is gone."""
    raw = ports.cache.job(key)
    if raw is None:
        return None
    job = parse_job(raw)
    children = ports.cache.children(job.uid)
    seen = _observed(job, children)
    ref = job.spec.sample_set
    if ref and job.deleted_at is None and needs_sample_set(job.spec, job.status, len(seen.pods)):
        seen = replace(seen, sample_set=await ports.sample_sets.find(Key(ref.namespace, ref.name)))
    return replace(seen, port_claims=ports.cache.port_claims(job.uid))


def _observed(job: Job, children: Children) -> Observed:
    parsed = (parse_pod(job.key.name, raw) for raw in children.pods)
    config = next((c for c in children.config_maps if c["metadata"]["name"] == job.key.name), None)
    return Observed(
        job=job,
        pods=tuple(sorted((p for p in parsed if p), key=lambda p: (p.id.role, p.id.index))),
        services={s["metadata"]["name"]: s["metadata"]["uid"] for s in children.services},
        config=None if config is None else config.get("data") or {},
    )


class PaddleJobReconciler:
    """Bring one PaddleJob's children and status to what its spec asks for."""

    def __init__(self, ports: Ports, options: Options, clock: Clock, metrics: Metrics) -> None:
        self._ports = ports
        self._options = options
        self._clock = clock
        self._metrics = metrics

    async def reconcile(self, key: Key) -> Result:
        """One full pass; safe to be cut off anywhere and begun again.

        Raises:
            Retry, Conflict: something has to be read or written again.
        """
        seen = await observe_job(self._ports, key)
        if seen is None:
            return Result()
        now = self._clock.now()
        todo = plan(seen, self._options, now)
        job, refusals = await self._act(seen.job, todo)
        todo = conclude(seen, todo, refusals, self._options, now)
        status = await self._announce(job, todo.status)
        await self._record(job, replace(todo, status=status), now)
        return self._next_look(todo, status)

    async def _act(self, job: Job, todo: Plan) -> tuple[Job, tuple[Refusal, ...]]:
        if todo.metadata:
            job = parse_job(await self._ports.jobs.patch_metadata(job, todo.metadata))
        elif todo.creates_pods:
            # The caches of jobs and pods move apart: a job that ended meanwhile must not run again.
            await self._ports.jobs.check_current(job)
        if todo.config_patch:
            # First, so that no new pod ever starts with the old lists.
            data = {"data": dict(todo.config_patch)}
            await self._ports.children.patch(job, ChildKind.CONFIG_MAP, job.key.name, data)
        refusals = await self._create(job, todo)
        if not refusals:
            await self._release(job, todo)
        await _all_of(self._ports.children.delete(job, ref) for ref in todo.delete)
        return job, refusals

    async def _create(self, job: Job, todo: Plan) -> tuple[Refusal, ...]:
        """Kind by kind, for pods need what comes before them; a refused kind stops the next."""
        for kind in ChildKind:
            wanted = [c for c in todo.create if c.kind is kind]
            answers = await _all_of(self._ports.children.create(job, child) for child in wanted)
            refusals = tuple(a for a in answers if a is not None)
            self._metrics.created(kind, len(wanted) - len(refusals))
            if refusals:
                return refusals
        return ()

    async def _release(self, job: Job, todo: Plan) -> None:
        word = {"metadata": {"annotations": {names.ANNOTATION_RELEASED: "true"}}}
        await _all_of(self._ports.children.patch(job, ChildKind.POD, name, word) for name in todo.release)

    async def _announce(self, job: Job, status: JobStatus) -> JobStatus:
        told = await self._ports.outbox.tell(_source(job, status), status.announcements)
        return status.with_announcements(told)

    async def republish(self, key: Key, everything: bool = False) -> Republished:
        """Bring back what the bus has lost of the job's facts; the status is only read. Raises Retry."""
        raw = self._ports.cache.job(key)
        if raw is None:
            return Republished()
        job = parse_job(raw)
        facts = job.status.announcements
        return await self._ports.outbox.republish(_source(job, job.status), facts, everything=everything)

    async def _record(self, job: Job, todo: Plan, now: datetime) -> None:
        if may_go(job, todo, self._options, now):
            left = [f for f in job.finalizers if f != names.FINALIZER]
            await self._ports.jobs.patch_metadata(job, {"finalizers": left})
        elif patch := status_patch(job.raw_status, render_status(todo.status)):
            await self._ports.jobs.patch_status(job, patch)
        for note in todo.notes:
            self._ports.events.note(job, note)

    def _next_look(self, todo: Plan, status: JobStatus) -> Result:
        waits = [todo.requeue_after] if todo.requeue_after is not None else []
        if pending(status.announcements):
            waits.append(self._options.publish_retry)
        return Result(requeue_after=min(waits, default=None))


def _source(job: Job, status: JobStatus) -> FactSource:
    created = datetime.fromisoformat(job.created_at) if job.created_at else _LONG_AGO
    return FactSource(job.key, job.uid, created, lambda fact: _event(job, status, fact))


def _event(job: Job, status: JobStatus, fact: Announcement) -> Event | None:
    """None for what another version announced and this one does not know."""
    if not is_fact(fact.fact):
        return None
    return make_event(
        render_fact(job, status, fact),
        id=fact.event_id(job.uid),
        source=names.SERVICE,
        namespace=job.key.namespace,
        uid=job.uid,
        time=datetime.fromisoformat(fact.at),
        traceparent=traceparent(),
    )


async def _all_of(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Await all, few at a time; every call is tried before the first error is raised."""
    slots = asyncio.Semaphore(WRITES_AT_ONCE)

    async def one(call: Awaitable[T]) -> T:
        async with slots:
            return await call

    answers = await asyncio.gather(*(one(c) for c in calls), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [a for a in answers if not isinstance(a, BaseException)]
