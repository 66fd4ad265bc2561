"""PaddleJob as `paddlewheel.operator.reconciler` runs it. What to do is decided in `core.plan`."""

from __future__ import annotations

from datetime import datetime

from job_controller.core.conclude import conclude
from job_controller.core.facts import FACTS, Case
from job_controller.core.job_status import JobStatus, Plan
from job_controller.core.model import Observed, Options
from job_controller.core.plan import plan
from job_controller.observe import JobObserver
from paddlewheel.contracts.keys import Key
from paddlewheel.operator.domain.plan import Applied
from paddlewheel.operator.executor import Executor
from paddlewheel.operator.failures import Owner
from paddlewheel.operator.metrics import ControllerMetrics


class PaddleJobKind:
    """Brings one PaddleJob's children and status to what its spec asks for."""

    facts = FACTS

    def __init__(
        self, observer: JobObserver, executor: Executor, options: Options, metrics: ControllerMetrics
    ) -> None:
        self._observer = observer
        self._executor = executor
        self._options = options
        self._metrics = metrics

    async def observe(self, key: Key) -> Observed | None:
        return await self._observer.observe(key)

    def plan(self, seen: Observed, now: datetime) -> Plan:
        return plan(seen, self._options, now)

    async def apply(self, seen: Observed, todo: Plan) -> Applied:
        owner = Owner(seen.job.uid, seen.job.generation)
        applied = await self._executor.apply(owner, todo.actions)
        self._metrics.created(applied.created)
        self._observer.applied(seen, applied)
        return applied

    def conclude(self, seen: Observed, todo: Plan, applied: Applied, now: datetime) -> Plan:
        return conclude(seen, todo, applied, now)

    def case(self, seen: Observed, status: JobStatus) -> Case:
        return Case(seen.job, status)

    def recorded(self, seen: Observed, status: JobStatus) -> None:
        self._observer.recorded(seen, status)

    def forget(self, key: Key, uid: str) -> None:
        self._executor.forget(uid)
        self._observer.forget_job(key, uid)
