"""Reconciles Triggers with `paddlewheel.operator.reconciler`, and settles the messages of their events."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import structlog

from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Conflict, Permanent, Retry, Unavailable
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import Object
from paddlewheel.operator.domain.plan import Applied, earliest
from paddlewheel.operator.memo import Memo
from paddlewheel.operator.reconciler import Outside, Reconciler
from trigger_controller.apply import Applier
from trigger_controller.domain.facts import FACTS, Case
from trigger_controller.domain.matching import may_concern
from trigger_controller.domain.model import Deferred, Observed, Occurrence, Trigger
from trigger_controller.domain.plan import Handled, Plan, conclude, deferrable, handled, plan
from trigger_controller.domain.policies.deferral import Change
from trigger_controller.inbox import Inbox, Items, settle
from trigger_controller.memory import Memory
from trigger_controller.metrics import Metrics
from trigger_controller.observe import TriggerObserver
from trigger_controller.passes import Passes
from trigger_controller.timing import NAMESPACE_TURN_INTERVAL_SECONDS, RELEASE_RETRY_INTERVAL_SECONDS

log = structlog.get_logger(__name__)


class TriggerKind:
    """Records a trigger's events in its status, and creates the objects that are due."""

    facts = FACTS

    def __init__(
        self, observer: TriggerObserver, applier: Applier, memory: Memory, clock: Clock, metrics: Metrics
    ) -> None:
        self._observer = observer
        self._applier = applier
        self._memory = memory
        self._clock = clock
        self._metrics = metrics
        self._deferred: dict[Key, tuple[Deferred, frozenset[str]]] = {}
        """Trigger to its deferred events after this pass, and the ids of events that this pass has added."""
        self.handled: dict[Key, Handled] = {}

    async def observe(self, key: Key) -> Observed | None:
        return await self._observer.observe(key)

    def plan(self, seen: Observed, now: datetime) -> Plan:
        self.handled[seen.trigger.key] = Handled()
        return plan(seen, now)

    async def apply(self, seen: Observed, todo: Plan) -> Applied:
        """Create and delete children, and defer events that could not be handled.

        Events are deferred before the status contains them. So if the status contains events that are missing
        in the bucket, they are lost, and no other replica is about to write them.
        """
        applied = await self._applier.apply(seen.trigger, todo)
        self._deferred.pop(seen.trigger.key, None)
        if add := deferrable(seen, applied, self._clock.now()):
            await self._defer(seen.trigger, add)
        return applied

    async def _defer(self, trigger: Trigger, add: tuple[Occurrence, ...]) -> None:
        try:
            after = await self._memory.change_deferred(trigger.uid, Change(add))
        except (Retry, Permanent) as error:
            log.warning("events are not deferred yet", trigger=trigger.uid, why=str(error))
            return
        self._deferred[trigger.key] = after, frozenset(occurrence.id for occurrence in add)

    def conclude(self, seen: Observed, todo: Plan, applied: Applied, now: datetime) -> Plan:
        if found := self._deferred.pop(seen.trigger.key, None):
            seen = replace(seen, deferred=found[0], kept=found[1])
        self.handled[seen.trigger.key] = handled(seen, applied, now)
        return conclude(seen, todo, applied, now)

    def case(self, seen: Observed, status: TriggerStatus) -> Case:
        return Case()

    def recorded(self, seen: Observed, status: TriggerStatus) -> None:
        self._metrics.recorded(seen.status, status, is_suspended=seen.trigger.spec.suspend)

    def forget(self, key: Key, uid: str) -> None:
        self._applier.forget(uid)


class TriggerReconciler(Reconciler[Observed, TriggerStatus, Case]):
    """Reconciles triggers, and settles messages when a pass has recorded their events."""

    def __init__(
        self, kind: TriggerKind, outside: Outside, inbox: Inbox, memory: Memory, parse: Memo[Trigger]
    ) -> None:
        super().__init__(kind, outside)
        self._handled = kind.handled
        self._inbox = inbox
        self._memory = memory
        self._failing: set[Key] = set()
        """Triggers whose passes fail and that have deferred events for it. A pass that succeeds removes
        them."""
        self._passes = Passes(outside.clock)
        self._parse = parse

    async def reconcile(self, key: Key) -> Result:
        """Run one pass. If it fails, its events wait for the next pass, on the bus and then in the bucket.

        A pass fails when the API server refuses the status, when the trigger cannot be read, or because of a
        bug.
        """
        if self._passes.is_crowded(key):
            return Result(NAMESPACE_TURN_INTERVAL_SECONDS)
        with self._passes.running(key):
            return await self._reconcile_and_settle(key)

    async def _reconcile_and_settle(self, key: Key) -> Result:
        items = self._inbox.pending(key)
        self._handled.pop(key, None)
        try:
            result = await super().reconcile(key)
        except Exception as error:
            await self._defer_spent(key, items, error)
            raise
        self._failing.discard(key)
        done = self._handled.pop(key, Handled())
        again = Result(earliest(result.requeue_after, RELEASE_RETRY_INTERVAL_SECONDS))
        try:
            await self._memory.remember(key, done.digests)
        except Retry:
            return again
        if done.ended:
            # An event that stays in the bucket by mistake is tried again, and its mark shows that it was
            # handled.
            await self._change_deferred(done.trigger_uid, Change(ended=done.ended))
        self._inbox.hold(key, items, done.held)
        settle(items, held=done.held)
        return result

    async def _change_deferred(self, trigger_uid: str, change: Change) -> bool:
        """Change the deferred events; False if the bucket could not be written."""
        try:
            await self._memory.change_deferred(trigger_uid, change)
        except (Retry, Permanent) as error:
            log.warning("deferred events are not written yet", trigger=trigger_uid, why=str(error))
            return False
        return True

    async def _defer_spent(self, key: Key, items: Items, error: Exception) -> None:
        """Defer events that may not wait any longer, so that a failing trigger does not hold up others.

        While the API server is unreachable all triggers wait, so nothing is deferred.
        """
        if not items or isinstance(error, Unavailable):
            return
        self._inbox.hold(key, items, {occurrence.id for occurrence in items.values()})
        spent = self._spent(key, error)
        events = {done: o for done, o in items.items() if o.id in spent or key in self._failing}
        trigger = self._out.store.get(key) if events else None
        if trigger is None:
            return
        add = tuple(o for o in events.values() if self._may_concern(trigger, o))
        if not add or await self._change_deferred(uid_of(trigger), Change(add)):
            self._failing.add(key)
            settle(events)

    def _spent(self, key: Key, error: Exception) -> frozenset[str]:
        # After a conflict, the next attempt usually succeeds.
        return self._inbox.overdue(key) if isinstance(error, Conflict) else self._inbox.spent(key)

    def _may_concern(self, trigger: Object, occurrence: Occurrence) -> bool:
        try:
            return may_concern(self._parse(trigger), occurrence)
        except Permanent:
            # The events of a trigger that cannot be read wait until it is corrected.
            return True
