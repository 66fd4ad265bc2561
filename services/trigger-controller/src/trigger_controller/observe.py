"""Reads the state of a trigger: from caches and buckets, and from the API server where exactly-once requires
it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube.objects import controller_uid, id_of, uid_of
from paddlewheel.kube.ports import Cluster, Object
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.memo import Memo
from paddlewheel.operator.watch import Watch
from trigger_controller.domain import names
from trigger_controller.domain.facts import outbox_room
from trigger_controller.domain.matching import concerns, is_wanted
from trigger_controller.domain.model import Child, Deferred, Observed, Occurrence, Trigger
from trigger_controller.domain.parse import parse_child, parse_origin
from trigger_controller.domain.plan import may_release
from trigger_controller.domain.policies.deferral import is_stuck, to_try
from trigger_controller.domain.policies.history import outdated
from trigger_controller.domain.policies.known import is_known, is_too_old
from trigger_controller.domain.policies.release import ALLOW, gathers, may_fire
from trigger_controller.domain.policies.schedule import is_dealt_with, look, time_of
from trigger_controller.inbox import Inbox
from trigger_controller.memory import Memory
from trigger_controller.metrics import Metrics
from trigger_controller.watch import BY_OWNER, CHILDREN


class TriggerObserver:
    """Gathers the state of one trigger and the events that were offered to it."""

    def __init__(
        self,
        watch: Watch,
        cluster: Cluster,
        memory: Memory,
        inbox: Inbox,
        clock: Clock,
        parse: Memo[Trigger],
        metrics: Metrics,
    ) -> None:
        self._metrics = metrics
        self._watch = watch
        self._cluster = cluster
        self._memory = memory
        self._inbox = inbox
        self._clock = clock
        self._parse = parse

    def forget(self, obj: Object) -> None:
        """Drop the state of a deleted trigger."""
        self._parse.forget(obj)

    async def observe(self, key: Key) -> Observed | None:
        """Observe a trigger; None if it does not exist. Raises Permanent if it cannot be parsed."""
        obj = self._watch.of(names.TRIGGER).get(key)
        if obj is None:
            return None
        trigger = self._parse(obj)
        if trigger.deleted_at is not None:
            return Observed(trigger)
        seen = await self._with_events(await self._with_deferred(Observed(trigger)))
        seen = self._with_turn(self._with_cached(_with_postponed(await self._without_lost(seen))))
        return await self._with_unrecorded(await self._with_children(seen))

    async def _with_deferred(self, seen: Observed) -> Observed:
        trigger, has_deferred = seen.trigger, seen.status.deferred is not None
        try:
            return replace(seen, deferred=await self._memory.deferred(trigger.uid, is_sure=has_deferred))
        except (Retry, Permanent) as error:
            troubles = (_trouble(trigger, error),) if has_deferred else ()
            return replace(seen, deferred=None, troubles=troubles)

    async def _with_events(self, seen: Observed) -> Observed:
        """Add the offered events that are not deferred already, and some of the deferred ones."""
        trigger, key, deferred = seen.trigger, seen.trigger.key, seen.deferred or Deferred()
        offered = {o.id: o for o in self._inbox.pending(key).values() if not deferred.has(o.id)}
        again = to_try(deferred, trigger.status, self._clock.now()) if may_fire(seen) else ()
        taken = [*again, *offered.values()][: outbox_room(trigger.status)]
        judged = await gather_bounded(self._judge(trigger, occurrence) for occurrence in taken)
        troubles = {o.id: f for o, f in zip(taken, judged, strict=True) if isinstance(f, Trouble)}
        clear = {o.id for o in taken} - troubles.keys()
        unclear = (o for o in taken if o.id in troubles and troubles[o.id].reason != Reason.BUS_UNAVAILABLE)
        return replace(
            seen,
            fresh=tuple(found for found in judged if isinstance(found, Occurrence)),
            held=frozenset(offered.keys() - clear),
            unclear=tuple(unclear),
            spent=self._inbox.spent(key),
            again=frozenset(o.id for o in again) & clear,
            troubles=(*seen.troubles, *troubles.values()),
        )

    async def _judge(self, trigger: Trigger, offered: Occurrence) -> Occurrence | Trouble | None:
        """The event with its origin; None if the trigger need not handle it; a Trouble if a read failed."""
        if not is_wanted(trigger, offered):
            return None
        if trigger.ungranted or is_too_old(offered.event.time, self._clock.now()):
            self._metrics.skipped("not_granted" if trigger.ungranted else "too_old")
            return None
        try:
            occurrence = await self._with_origin(offered)
            if not concerns(trigger, occurrence):
                return None
            is_known = await self._memory.knows(
                trigger.key, trigger.uid, names.digest(trigger.uid, occurrence.id)
            )
        except (Retry, Permanent) as error:
            return _trouble(trigger, error)
        return None if is_known else occurrence

    async def _without_lost(self, seen: Observed) -> Observed:
        """Remove events that the trigger has handled, but whose marks are lost."""
        trigger, status = seen.trigger, seen.status
        if not seen.fresh:
            return seen
        try:
            lost_until = await self._memory.lost_until(trigger.uid, status.last_event_time)
        except (Retry, Permanent) as error:
            held = seen.held.union(occurrence.id for occurrence in seen.fresh)
            troubles = (*seen.troubles, _trouble(trigger, error))
            return replace(seen, fresh=(), held=held, again=seen.again - held, troubles=troubles)
        fresh = tuple(o for o in seen.fresh if not is_known(status, o.event.time, lost_until))
        return replace(seen, fresh=fresh)

    def _with_turn(self, seen: Observed) -> Observed:
        """Add the due time of a schedule.

        It needs no mark: the status and the jobs show whether it was handled.
        """
        turn = look(seen.trigger, seen.children, self._clock.now())
        due = (turn.due,) if turn is not None and turn.due is not None else ()
        return replace(seen, fresh=(*seen.fresh, *due), turn=turn)

    async def _with_origin(self, occurrence: Occurrence) -> Occurrence:
        """Add the triggers that led to the fact's object: from the object, or from the bucket if it is
        deleted."""
        if not occurrence.kind:
            return occurrence
        event = occurrence.event
        key = Key(event.object_namespace, event.object_name)
        # The cache has only objects that triggers created, and may lag behind.
        found = self._watch.of(occurrence.kind).get(key)
        if found is None or uid_of(found) != event.object_uid:
            with suppress(NotFound):
                found = await self._cluster.get(CHILDREN[occurrence.kind], key)
        if found is not None and uid_of(found) == event.object_uid:
            return occurrence.of(parse_origin(found))
        return occurrence.of(await self._memory.origin(event.object_uid))

    async def _with_children(self, seen: Observed) -> Observed:
        """List the children from the API server, if a decision depends on them."""
        trigger = seen.trigger
        if trigger.spec.concurrency_policy == ALLOW:
            return seen
        if not may_release(seen, self._clock.now()):
            # The end of a running child causes another pass.
            return replace(seen, is_cached=True)
        selector = f"{names.LABEL_TRIGGER}={trigger.key.name}"
        try:
            # The cache may not have a child yet that another replica has just created.
            lists = [
                await self._cluster.list(resource, trigger.key.namespace, label_selector=selector)
                for resource in CHILDREN.values()
            ]
        except (Retry, Permanent) as error:
            return replace(seen, is_blind=True, troubles=(*seen.troubles, _trouble(trigger, error)))
        listed = (obj for objects in lists for obj in objects if controller_uid(obj) == [trigger.uid])
        return replace(seen, children=tuple(map(parse_child, listed)))

    def _with_cached(self, seen: Observed) -> Observed:
        owner = id_of(seen.trigger.obj)
        cached = (obj for kind in CHILDREN for obj in self._watch.of(kind).by_index(BY_OWNER, owner))
        return replace(seen, children=tuple(map(parse_child, cached)))

    async def _with_unrecorded(self, seen: Observed) -> Observed:
        """Find outdated children whose event may be delivered again.

        A child may end before its event is recorded. If the service is killed then, it receives the event
        again.
        """
        going = {ref.uid for ref in outdated(seen)}
        ended = [child for child in seen.children if child.ref.uid in going]
        recorded = await gather_bounded(self._is_recorded(seen.trigger, child) for child in ended)
        kept = (child.ref.uid for child, is_done in zip(ended, recorded, strict=True) if not is_done)
        return replace(seen, unrecorded=frozenset(kept))

    async def _is_recorded(self, trigger: Trigger, child: Child) -> bool:
        if (time := time_of(child.event_id)) is not None:
            return is_dealt_with(trigger.status, time)
        digest = names.digest(trigger.uid, child.event_id)
        created_at = parse_stamp(child.created_at)
        if digest in trigger.status.recent or created_at is None or is_too_old(created_at, self._clock.now()):
            return True
        try:
            return await self._memory.knows(trigger.key, trigger.uid, digest)
        except (Retry, Permanent):
            return False


def _with_postponed(seen: Observed) -> Observed:
    """While no creation succeeds, only deferred events are tried."""
    if not (is_stuck(seen.status) and seen.again) or gathers(seen):
        return seen
    tried = tuple(o for o in seen.fresh if o.id in seen.again)
    return replace(seen, fresh=tried, postponed=tuple(o for o in seen.fresh if o.id not in seen.again))


def _trouble(trigger: Trigger, error: Retry | Permanent) -> Trouble:
    return Trouble("read", names.TRIGGER, trigger.key, error.reason, error.message or error.reason)
