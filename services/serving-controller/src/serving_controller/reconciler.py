"""PaddleService as `paddlewheel.operator.reconciler` runs it. What to do is decided in `domain.plan`."""

from __future__ import annotations

from datetime import datetime

from paddlewheel.contracts.crds.paddleservice import PaddleServiceStatus
from paddlewheel.contracts.keys import Key
from paddlewheel.operator.domain.plan import Applied
from paddlewheel.operator.executor import Executor
from paddlewheel.operator.failures import Owner
from serving_controller.domain.facts import FACTS, Case
from serving_controller.domain.model import Observed, Options
from serving_controller.domain.plan import Plan, conclude, plan
from serving_controller.metrics import Metrics
from serving_controller.observe import Observer
from serving_controller.ports import Figures


class PaddleServiceKind:
    """Brings one PaddleService's children and status to what its spec asks for."""

    facts = FACTS

    def __init__(
        self, observer: Observer, executor: Executor, figures: Figures, options: Options, metrics: Metrics
    ) -> None:
        self._observer = observer
        self._executor = executor
        self._figures = figures
        self._options = options
        self._metrics = metrics

    async def observe(self, key: Key) -> Observed | None:
        return await self._observer.observe(key)

    def plan(self, seen: Observed, now: datetime) -> Plan:
        return plan(seen, self._options, now)

    async def apply(self, seen: Observed, todo: Plan) -> Applied:
        applied = await self._executor.apply(Owner(seen.own.uid, seen.own.generation), todo.actions)
        self._metrics.created(applied.created)
        return applied

    def conclude(self, seen: Observed, todo: Plan, applied: Applied, now: datetime) -> Plan:
        return conclude(seen, todo, applied, now)

    def case(self, seen: Observed, status: PaddleServiceStatus) -> Case:
        return Case(status.url)

    def recorded(self, seen: Observed, status: PaddleServiceStatus) -> None:
        self._metrics.recorded(seen.status, status)

    def forget(self, key: Key, uid: str) -> None:
        self._figures.forget(key)
        self._executor.forget(uid)
