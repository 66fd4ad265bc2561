"""Reads only: caches, the memory, and fresh reads where exactly-once depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube.objects import controller_uid, uid_of
from paddlewheel.kube.ports import Cluster, Object, Objects
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.memo import Memo
from paddlewheel.operator.watch import Watch
from trigger_controller.domain import names
from trigger_controller.domain.facts import outbox_room
from trigger_controller.domain.matching import concerns
from trigger_controller.domain.model import Observed, Occurrence, Origin, Trigger
from trigger_controller.domain.parse import parse_child, parse_origin, parse_trigger
from trigger_controller.domain.policies.release import ALLOW
from trigger_controller.memory import Memory
from trigger_controller.watch import BY_OWNER, CHILDREN


class TriggerObserver:
    """Gathers what is known about one trigger and the events offered to it."""

    def __init__(self, watch: Watch, cluster: Cluster, memory: Memory) -> None:
        self._watch = watch
        self._cluster = cluster
        self._memory = memory
        self._parse: Memo[Trigger] = Memo(parse_trigger)

    def forget(self, obj: Object) -> None:
        """A trigger is gone."""
        self._parse.forget(obj)

    async def observe(self, key: Key, offered: Sequence[Occurrence]) -> Observed | None:
        """None when the trigger is gone. Raises Permanent for a trigger that cannot be parsed."""
        obj = self._watch.of(names.TRIGGER).get(key)
        if obj is None:
            return None
        trigger = self._parse(obj)
        if trigger.is_deleting:
            return Observed(trigger)
        unique = list({occurrence.id: occurrence for occurrence in offered}.values())
        room = outbox_room(trigger.status)
        judged = await gather_bounded(self._judge(trigger, occurrence) for occurrence in unique[:room])
        held = {o.id for o, found in zip(unique, judged, strict=False) if isinstance(found, Trouble)}
        seen = Observed(
            trigger,
            fresh=tuple(found for found in judged if isinstance(found, Occurrence)),
            held=frozenset(held.union(o.id for o in unique[room:])),
            troubles=tuple(found for found in judged if isinstance(found, Trouble)),
        )
        return await self._with_children(seen)

    async def _judge(self, trigger: Trigger, offered: Occurrence) -> Occurrence | Trouble | None:
        """The event with its origin, None if it is none of the trigger's or known, or why that is unclear."""
        try:
            occurrence = await self._with_origin(offered)
            if not concerns(trigger, occurrence):
                return None
            is_known = await self._memory.knows(trigger.uid, names.digest(trigger.uid, occurrence.id))
        except (Retry, Permanent) as error:
            return _trouble(trigger, error)
        return None if is_known else occurrence

    async def _with_origin(self, occurrence: Occurrence) -> Occurrence:
        """With the triggers that led to the object of the fact: from it, or from memory when it is gone."""
        if not occurrence.kind:
            return occurrence
        origin = await self._origin(occurrence)
        event = occurrence.event.model_copy(update={"chain": origin.chain})
        return replace(occurrence, event=event, creator=origin.creator)

    async def _origin(self, occurrence: Occurrence) -> Origin:
        event = occurrence.event
        key = Key(event.object_namespace, event.object_name)
        found = self._watch.of(occurrence.kind).get(key)
        try:
            if found is None or uid_of(found) != event.object_uid:
                found = await self._cluster.get(CHILDREN[occurrence.kind], key)
        except NotFound:
            found = None
        if found is not None and uid_of(found) == event.object_uid:
            return parse_origin(found)
        return await self._memory.origin(event.object_uid)

    async def _with_children(self, seen: Observed) -> Observed:
        trigger, status = seen.trigger, seen.status
        cached = [o for kind in CHILDREN for o in self._watch.of(kind).by_index(BY_OWNER, trigger.uid)]
        seen = replace(seen, children=tuple(map(parse_child, cached)))
        may_release = seen.fresh or status.waiting or status.firing
        if trigger.spec.concurrency_policy == ALLOW or not may_release:
            return seen
        try:
            # The cache may not show yet what another replica created a moment ago.
            listed = [obj for kind in CHILDREN for obj in await self._list(kind, trigger)]
        except (Retry, Permanent) as error:
            return replace(seen, is_blind=True, troubles=(*seen.troubles, _trouble(trigger, error)))
        return replace(seen, children=tuple(map(parse_child, listed)))

    async def _list(self, kind: str, trigger: Trigger) -> Objects:
        selector = f"{names.LABEL_TRIGGER}={trigger.key.name}"
        found = await self._cluster.list(CHILDREN[kind], trigger.key.namespace, label_selector=selector)
        return [obj for obj in found if controller_uid(obj) == [trigger.uid]]


def _trouble(trigger: Trigger, error: Retry | Permanent) -> Trouble:
    return Trouble("read", names.TRIGGER, trigger.key, error.reason, error.message or error.reason)
