"""Trigger as `paddlewheel.operator.reconciler` runs it, around an inbox of events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.core.errors import Conflict, Retry
from paddlewheel.operator.domain.plan import Applied, earliest
from paddlewheel.operator.outbox import Republished
from paddlewheel.operator.reconciler import Reconciler
from trigger_controller.apply import Applier
from trigger_controller.domain import names
from trigger_controller.domain.facts import FACTS, Case
from trigger_controller.domain.model import Observed
from trigger_controller.domain.plan import Plan, conclude, plan, undone_events
from trigger_controller.domain.policies.release import RECHECK
from trigger_controller.inbox import Inbox
from trigger_controller.memory import Memory
from trigger_controller.metrics import Metrics
from trigger_controller.observe import TriggerObserver


@dataclass(frozen=True)
class Handled:
    """What a pass did with the events. `held`: ids of those that have to wait."""

    trigger_uid: str = ""
    digests: tuple[str, ...] = ()
    held: frozenset[str] = frozenset()


class TriggerKind:
    """Brings a trigger's events into its status, and what is due of them into the cluster."""

    facts = FACTS

    def __init__(self, inbox: Inbox, observer: TriggerObserver, applier: Applier, metrics: Metrics) -> None:
        self._inbox = inbox
        self._observer = observer
        self._applier = applier
        self._metrics = metrics
        self._handled: dict[Key, Handled] = {}

    async def observe(self, key: Key) -> Observed | None:
        offered = [item.occurrence for item in self._inbox.pending(key)]
        return await self._observer.observe(key, offered)

    def plan(self, seen: Observed, now: datetime) -> Plan:
        return plan(seen, now)

    async def apply(self, seen: Observed, todo: Plan) -> Applied:
        return await self._applier.apply(seen.trigger, todo)

    def conclude(self, seen: Observed, todo: Plan, applied: Applied, now: datetime) -> Plan:
        uid, held = seen.trigger.uid, seen.held | undone_events(seen, applied, now)
        digests = tuple(names.digest(uid, o.id) for o in seen.fresh if o.id not in held)
        self._handled[seen.trigger.key] = Handled(uid, digests, held)
        return conclude(seen, todo, applied, now)

    def case(self, seen: Observed, status: TriggerStatus) -> Case:
        return Case()

    def recorded(self, seen: Observed, status: TriggerStatus) -> None:
        self._metrics.events(status.events - seen.status.events)

    def forget(self, key: Key, uid: str) -> None:
        self._applier.forget(uid)

    def handled(self, key: Key) -> Handled:
        """What the last pass did; nothing when it found no trigger."""
        return self._handled.pop(key, Handled())


class TriggerReconciler:
    """Settles messages once a pass has recorded their events."""

    def __init__(
        self,
        kind: TriggerKind,
        reconciler: Reconciler[Observed, TriggerStatus, Case],
        inbox: Inbox,
        memory: Memory,
    ) -> None:
        self._kind = kind
        self._reconciler = reconciler
        self._inbox = inbox
        self._memory = memory

    async def reconcile(self, key: Key) -> Result:
        """One full pass; safe to be cut off anywhere and begun again.

        Raises:
            Retry, Conflict: the trigger has to be read or written again; the events wait.
            Permanent: the trigger cannot be parsed; its events are given up.
        """
        items = self._inbox.pending(key)
        try:
            result = await self._reconciler.reconcile(key)
        except (Retry, Conflict):
            raise
        except Exception as error:
            self._inbox.settle(items, error)
            raise
        handled = self._kind.handled(key)
        try:
            await self._memory.remember(handled.trigger_uid, handled.digests)
        except Retry:
            return Result(earliest(result.requeue_after, RECHECK))
        self._inbox.settle(item for item in items if item.occurrence.id not in handled.held)
        return result

    def keep(self, owns: Callable[[Key], bool]) -> None:
        """Forget the triggers that have fallen to another replica."""
        self._reconciler.keep(owns)

    async def republish(self, key: Key, everything: bool = False) -> Republished:
        """As the generic reconciler's."""
        return await self._reconciler.republish(key, everything)
