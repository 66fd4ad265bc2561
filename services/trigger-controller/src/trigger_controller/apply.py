"""Carries out the actions of a plan, and stores which trigger created each child."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import Retry
from paddlewheel.kube.objects import controller_uid
from paddlewheel.kube.ports import Object
from paddlewheel.operator.domain.plan import Applied, ChildRef, Create, Trouble, earliest
from paddlewheel.operator.executor import Executor, Refusal
from paddlewheel.operator.failures import Owner
from trigger_controller.domain import names
from trigger_controller.domain.model import Trigger
from trigger_controller.domain.parse import parse_origin
from trigger_controller.domain.plan import Plan
from trigger_controller.memory import Memory
from trigger_controller.metrics import Metrics
from trigger_controller.timing import RELEASE_RETRY_INTERVAL_SECONDS


class Applier:
    """Creates and deletes children.

    A child counts as created when its origin is stored on the bus. Facts about the child may arrive after its
    deletion; without the origin, a trigger could fire because of its own child. Until the origin is stored,
    the event waits, and is tried again with the same name.

    Children of schedules count at once, because no fact can fire such a trigger. Their origins are stored
    when the bus is available again.
    """

    def __init__(self, executor: Executor, memory: Memory, metrics: Metrics) -> None:
        self._executor = executor
        self._memory = memory
        self._metrics = metrics
        self._asked: dict[str, str] = {}
        self._owed: dict[str, dict[str, tuple[ChildRef, Object]]] = {}
        """Trigger to child to the children of schedules whose origin is not stored yet."""

    async def apply(self, trigger: Trigger, todo: Plan) -> Applied:
        """Try all actions. Failures are in the result, and never raise an error."""
        self._retry_if_requested(trigger)
        applied = await self._executor.apply(Owner(trigger.uid, trigger.generation), todo.actions)
        self._metrics.created(applied)
        manifests = {a.key: a.render() for a in todo.actions if isinstance(a, Create)}
        if trigger.spec.when is not None and trigger.spec.when.schedule is not None:
            return await self._with_debts(trigger, applied, manifests)
        remembered = [(c, await self._remember(c, manifests[c.key])) for c in applied.children]
        troubles = tuple(trouble for _, trouble in remembered if trouble)
        return replace(
            applied,
            children=tuple(child for child, trouble in remembered if trouble is None),
            troubles=applied.troubles + troubles,
            retry_after=earliest(applied.retry_after, RELEASE_RETRY_INTERVAL_SECONDS if troubles else None),
        )

    def forget(self, trigger_uid: str) -> None:
        """Drop the state of a deleted trigger."""
        self._executor.forget(trigger_uid)
        self._memory.forget(trigger_uid)
        self._asked.pop(trigger_uid, None)
        self._owed.pop(trigger_uid, None)

    def _retry_if_requested(self, trigger: Trigger) -> None:
        """Try failed actions at once, without their backoff, when the user has changed the annotation for
        it."""
        if self._asked.setdefault(trigger.uid, trigger.retry) != trigger.retry:
            self._asked[trigger.uid] = trigger.retry
            self._executor.forget(trigger.uid)

    async def _with_debts(
        self, trigger: Trigger, applied: Applied, manifests: Mapping[Key, Object]
    ) -> Applied:
        owed = self._owed.pop(trigger.uid, {})
        owed |= {child.uid: (child, manifests[child.key]) for child in applied.children}
        left = {uid: debt for uid, debt in owed.items() if await self._remember(*debt) is not None}
        if not left:
            return applied
        self._owed[trigger.uid] = left
        return replace(applied, retry_after=earliest(applied.retry_after, RELEASE_RETRY_INTERVAL_SECONDS))

    async def _remember(self, child: ChildRef, manifest: Object) -> Trouble | None:
        try:
            await self._memory.remember_origin(child.uid, parse_origin(manifest))
        except Retry as error:
            return Trouble("create", child.kind, child.key, error.reason, error.message)
        return None


def claim(kind: str, found: Object, trigger_uid: str) -> Refusal | None:
    """None if the existing object was created for the same event, e.g. before a crash; otherwise a
    refusal."""
    name = str(found["metadata"]["name"])
    event_id = str((found["metadata"].get("annotations") or {}).get(names.ANNOTATION_EVENT, ""))
    is_same = name == names.child_name(parse_origin(found).creator, trigger_uid, event_id)
    if is_same and controller_uid(found) == [trigger_uid]:
        return None
    message = f"{kind} {name} exists and was not created for this event; delete or rename it"
    return Refusal(Reason.NAME_TAKEN, message)
