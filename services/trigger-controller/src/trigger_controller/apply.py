"""Carrying out a plan's actions, and remembering who created what."""

from __future__ import annotations

from dataclasses import replace

from paddlewheel.core.errors import Retry
from paddlewheel.kube.objects import controller_uid
from paddlewheel.kube.ports import Object
from paddlewheel.operator.domain.plan import Applied, ChildRef, Create, Trouble, earliest
from paddlewheel.operator.executor import Executor, Owner, Refusal
from trigger_controller.domain import names
from trigger_controller.domain.model import Trigger
from trigger_controller.domain.parse import parse_origin
from trigger_controller.domain.plan import Plan
from trigger_controller.domain.policies.release import RECHECK
from trigger_controller.memory import Memory
from trigger_controller.metrics import Metrics


class Applier:
    """Creates and deletes children.

    A child counts as created once its origin is remembered, for facts about it may outlive it: without the
    origin a trigger could fire itself. Until then its event waits, and is tried again under the same name.
    """

    def __init__(self, executor: Executor, memory: Memory, metrics: Metrics) -> None:
        self._executor = executor
        self._memory = memory
        self._metrics = metrics

    async def apply(self, trigger: Trigger, todo: Plan) -> Applied:
        """Everything is tried; never raises for a child."""
        applied = await self._executor.apply(Owner(trigger.uid, trigger.generation), todo.actions)
        self._count(applied)
        manifests = {a.key: dict(a.manifest) for a in todo.actions if isinstance(a, Create)}
        done: list[ChildRef] = []
        troubles = list(applied.troubles)
        for child in applied.children:
            trouble = await self._remember(child, manifests[child.key])
            done.append(child) if trouble is None else troubles.append(trouble)
        if len(done) == len(applied.children):
            return applied
        retry_after = earliest(applied.retry_after, RECHECK)
        return replace(applied, children=tuple(done), troubles=tuple(troubles), retry_after=retry_after)

    def forget(self, trigger_uid: str) -> None:
        """The trigger is gone."""
        self._executor.forget(trigger_uid)

    async def _remember(self, child: ChildRef, manifest: Object) -> Trouble | None:
        try:
            await self._memory.remember_origin(child.uid, parse_origin(manifest))
        except Retry as error:
            return Trouble("create", child.kind, child.key, error.reason, error.message or error.reason)
        return None

    def _count(self, applied: Applied) -> None:
        for child in applied.children:
            self._metrics.created(child.kind, "created")
        for trouble in applied.troubles:
            if trouble.verb == "create" and trouble.is_refusal:
                self._metrics.created(trouble.kind, "refused")


def claim(kind: str, found: Object, trigger_uid: str) -> Refusal | None:
    """A child made for the same event before a crash is ours; another's is never touched."""
    name = str(found["metadata"]["name"])
    event_id = str((found["metadata"].get("annotations") or {}).get(names.ANNOTATION_EVENT, ""))
    trigger = parse_origin(found).creator
    is_same = name == names.child_name(trigger, trigger_uid, event_id)
    if is_same and controller_uid(found) == [trigger_uid]:
        return None
    message = f"{kind} {name} exists and was not created for this event; delete or rename it"
    return Refusal(names.NAME_TAKEN, message)
