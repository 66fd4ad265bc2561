"""Trigger as `paddlewheel.operator.reconciler` runs it, around an inbox of events."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.core.errors import Conflict, Retry, Unavailable
from paddlewheel.kube.objects import uid_of
from paddlewheel.operator.domain.plan import Applied, earliest
from paddlewheel.operator.reconciler import Outside, Reconciler
from trigger_controller.apply import Applier
from trigger_controller.domain.facts import FACTS, Case
from trigger_controller.domain.model import Observed
from trigger_controller.domain.plan import Handled, Plan, conclude, handled, plan
from trigger_controller.domain.policies.deferral import Change
from trigger_controller.domain.policies.release import RECHECK
from trigger_controller.inbox import Inbox, Items, settle
from trigger_controller.memory import Memory
from trigger_controller.metrics import Metrics
from trigger_controller.observe import TriggerObserver


class TriggerKind:
    """Brings a trigger's events into its status, and what is due of them into the cluster."""

    facts = FACTS

    def __init__(self, observer: TriggerObserver, applier: Applier, metrics: Metrics) -> None:
        self._observer = observer
        self._applier = applier
        self._metrics = metrics
        self.handled: dict[Key, Handled] = {}

    async def observe(self, key: Key) -> Observed | None:
        return await self._observer.observe(key)

    def plan(self, seen: Observed, now: datetime) -> Plan:
        self.handled[seen.trigger.key] = Handled()
        return plan(seen, now)

    async def apply(self, seen: Observed, todo: Plan) -> Applied:
        return await self._applier.apply(seen.trigger, todo)

    def conclude(self, seen: Observed, todo: Plan, applied: Applied, now: datetime) -> Plan:
        self.handled[seen.trigger.key] = handled(seen, applied, now)
        return conclude(seen, todo, applied, now)

    def case(self, seen: Observed, status: TriggerStatus) -> Case:
        return Case()

    def recorded(self, seen: Observed, status: TriggerStatus) -> None:
        self._metrics.events(status.events - seen.status.events)

    def forget(self, key: Key, uid: str) -> None:
        self._applier.forget(uid)


class TriggerReconciler(Reconciler[Observed, TriggerStatus, Case]):
    """Settles messages once a pass has recorded their events."""

    def __init__(self, kind: TriggerKind, outside: Outside, inbox: Inbox, memory: Memory) -> None:
        super().__init__(kind, outside)
        self._handled = kind.handled
        self._inbox = inbox
        self._memory = memory

    async def reconcile(self, key: Key) -> Result:
        """As every reconciler. When a pass fails, its events wait for the next, on the bus and then deferred:
        the API server may refuse the status, the trigger may be unreadable, or it is a bug."""
        items = self._inbox.pending(key)
        self._handled.pop(key, None)
        try:
            result = await super().reconcile(key)
        except Exception as error:
            await self._defer_spent(key, items, error)
            raise
        done = self._handled.pop(key, Handled())
        try:
            await self._memory.remember(done.trigger_uid, done.digests)
            if done.deferral is not None and not done.deferral.is_empty:
                await self._memory.change_deferred(done.trigger_uid, done.deferral)
        except Retry:
            return Result(earliest(result.requeue_after, RECHECK))
        self._inbox.hold(key, items, done.held)
        settle(items, held=done.held)
        return result

    async def _defer_spent(self, key: Key, items: Items, error: Exception) -> None:
        """One trigger must hold up no other. While the API server is away, it does not."""
        if not items or isinstance(error, Unavailable):
            return
        self._inbox.hold(key, items, {occurrence.id for occurrence in items.values()})
        # A conflict usually passes with the next try.
        spent = self._inbox.overdue(key) if isinstance(error, Conflict) else self._inbox.spent(key)
        events = {done: occurrence for done, occurrence in items.items() if occurrence.id in spent}
        trigger = self._out.store.get(key) if events else None
        if trigger is None:
            return
        with suppress(Retry):
            change = Change(self._out.clock.now(), add=tuple(events.values()))
            await self._memory.change_deferred(uid_of(trigger), change)
            settle(events)
