"""Carrying out what a plan asks for: objects first, all of them tried; then the bus, which may be away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from dataset_controller.domain import actions as act
from dataset_controller.domain.names import OWNER_ANNOTATION
from dataset_controller.domain.objects import annotations_of, is_owned, key_of
from dataset_controller.domain.sampleset.policies.ownership import SHORT, foreign
from dataset_controller.ports import DataBus, DataCluster
from dataset_controller.view import View
from paddlewheel.bus.ports import Entry
from paddlewheel.contracts.run_keys import Record, RunKey, parse_run_record, set_pattern
from paddlewheel.contracts.subjects import work_filter
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, NotFound, PaddlewheelError, Permanent, Retry
from paddlewheel.kube import ports as kube
from paddlewheel.kube.ports import Object, Resource
from paddlewheel.operator.circuit_breaker import CircuitBreaker

log = structlog.get_logger(__name__)

RESOURCES: dict[str, Resource] = {
    resource.kind: resource
    for resource in (
        kube.PERSISTENT_VOLUMES,
        kube.PERSISTENT_VOLUME_CLAIMS,
        kube.SERVICES,
        kube.STATEFUL_SETS,
        kube.SECRETS,
        kube.PODS,
        kube.NODES,
        kube.SAMPLE_SETS,
        kube.SAMPLE_JOBS,
    )
}
WRITES_AT_ONCE = 16
"""Objects of one plan written at the same time."""
SURE_SECONDS = 10.0
"""A run's record written or found is not looked for again before."""

T = TypeVar("T")


@dataclass(frozen=True)
class Applied:
    """How it went. `refusal` is what the API server will not have; the errors end the reconcile."""

    created: tuple[str, ...] = ()
    refusal: tuple[str, str] | None = None
    error: PaddlewheelError | None = None
    is_bus_away: bool = False


class Effects:
    """The only place that writes to the cluster's children and to the bus's records."""

    def __init__(
        self, cluster: DataCluster, view: View, bus: DataBus, line: CircuitBreaker, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._bus = bus
        self._line = line
        self._clock = clock
        self._sure: dict[RunKey, float] = {}

    async def apply(self, owner_uid: str, todo: Iterable[act.Action]) -> Applied:
        """Try everything; what failed is told in the answer."""
        actions = list(todo)
        objects = [a for a in actions if isinstance(a, act.Create | act.Patch | act.Delete)]
        results = await _few_at_a_time(self._object(owner_uid, action) for action in objects)
        is_bus_away = not await self._records(a for a in actions if a not in objects)
        return _sum_up(objects, results, is_bus_away)

    async def patch(self, resource: Resource, patch: act.Patch) -> None:
        """One write to an own object, now. Raises Conflict, Retry."""
        try:
            self._view.wrote(resource, await self._cluster.patch(resource, patch.key, patch.patch))
        except NotFound:
            return

    async def _object(
        self, owner_uid: str, action: act.Create | act.Patch | act.Delete
    ) -> PaddlewheelError | None:
        resource = RESOURCES[action.kind]
        try:
            match action:
                case act.Create():
                    await self._create(owner_uid, resource, dict(action.manifest))
                case act.Patch():
                    await self.patch(resource, action)
                case act.Delete():
                    await self._cluster.delete(resource, action.key, uid=action.uid)
        except PaddlewheelError as error:
            return error
        return None

    async def _create(self, owner_uid: str, resource: Resource, manifest: Object) -> None:
        """Ours from before a crash is fine; somebody else's is refused."""
        try:
            self._view.wrote(resource, await self._cluster.create(resource, manifest))
        except AlreadyExists:
            found = await self._cluster.get(resource, key_of(manifest))
            is_ours = is_owned(found, owner_uid) or annotations_of(found).get(OWNER_ANNOTATION) == owner_uid
            if not is_ours:
                problem = foreign(resource.kind, found)
                raise Permanent(problem.reason, problem.message) from None
        except Permanent as error:
            kind = SHORT.get(resource.kind, resource.kind)
            raise Permanent(f"ErrorCreate{kind}", f"{key_of(manifest)}: {error.message}") from error

    async def _records(self, todo: Iterable[act.Action]) -> bool:
        """False when the bus is away; what is left is planned again."""
        try:
            for action in todo:
                await self._record(action)
        except Retry as error:
            log.info("records on the bus wait", error=str(error))
            return False
        return True

    async def _record(self, action: act.Action) -> None:
        match action:
            case act.WriteRun():
                await self._write_run(RunKey(action.run.set_uid, action.run.run_id), to_json(action.run))
            case act.CancelRun():
                await self._create_record(action.run.cancel, b"{}")
            case act.ForgetRun():
                self._sure.pop(action.run, None)
                await self._forget(action.run.pattern)
                await self._line.call(
                    self._bus.work.purge(work_filter(action.run.set_uid, action.run.run_id))
                )
            case act.ForgetSet():
                await self._forget_set(action.set_uid)

    async def _write_run(self, run: RunKey, record: bytes) -> None:
        """Once; but what the bus has lost is written again."""
        now = self._clock.monotonic()
        if now < self._sure.get(run, float("-inf")):
            return
        await self._create_record(run.spec, record)
        self._sure = {key: until for key, until in self._sure.items() if until > now}
        self._sure[run] = now + SURE_SECONDS

    async def _create_record(self, key: str, record: bytes) -> None:
        try:
            await self._line.call(self._bus.runs.create(key, record))
        except AlreadyExists:
            return

    async def _forget(self, pattern: str) -> None:
        """The spec goes first: without it no agent begins anew."""
        entries = await self._line.call(self._bus.runs.entries(pattern))
        for entry in sorted(entries, key=_is_not_spec):
            await self._line.call(self._bus.runs.delete(entry.key))

    async def _forget_set(self, set_uid: str) -> None:
        await self._forget(set_pattern(set_uid))
        for entry in await self._line.call(self._bus.nodes.entries(set_pattern(set_uid))):
            await self._line.call(self._bus.nodes.delete(entry.key))
        await self._line.call(self._bus.work.purge(work_filter(set_uid)))


def _is_not_spec(entry: Entry) -> bool:
    record = parse_run_record(entry.key)
    return record is None or record.record is not Record.SPEC


def _sum_up(
    objects: list[act.Create | act.Patch | act.Delete],
    results: list[PaddlewheelError | None],
    is_bus_away: bool,
) -> Applied:
    created = tuple(
        action.kind
        for action, error in zip(objects, results, strict=True)
        if isinstance(action, act.Create) and error is None
    )
    refusal = next(((e.reason, e.message) for e in results if isinstance(e, Permanent)), None)
    error = next((e for e in results if e is not None and not isinstance(e, Permanent)), None)
    return Applied(created, refusal, error, is_bus_away)


async def _few_at_a_time(calls: Iterable[Awaitable[T]]) -> list[T]:
    slots = asyncio.Semaphore(WRITES_AT_ONCE)

    async def one(call: Awaitable[T]) -> T:
        async with slots:
            return await call

    return list(await asyncio.gather(*(one(call) for call in calls)))
