"""Observe, plan, act, publish, record. What to do is decided in `domain.plan`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

import structlog

from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Result
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.core.telemetry import traceparent
from trigger_controller.domain import names
from trigger_controller.domain.matching import concerns
from trigger_controller.domain.model import (
    Conclusion,
    Created,
    Creation,
    Fact,
    Observed,
    Occurrence,
    Origin,
    Plan,
    Trigger,
)
from trigger_controller.domain.plan import conclude, plan, replaced
from trigger_controller.domain.render import chain_of
from trigger_controller.domain.status import status_patch
from trigger_controller.inbox import Inbox
from trigger_controller.metrics import Metrics
from trigger_controller.ports import Ports

log = structlog.get_logger(__name__)

WRITES_AT_ONCE = 16
"""Objects of one trigger written at the same time."""


class TriggerReconciler:
    """Bring a trigger's events into its status, and what is due of them into the cluster."""

    def __init__(self, ports: Ports, inbox: Inbox, clock: Clock, metrics: Metrics) -> None:
        self._ports = ports
        self._inbox = inbox
        self._clock = clock
        self._metrics = metrics

    async def reconcile(self, key: Key) -> Result:
        """One full pass; safe to be cut off anywhere and begun again.

        Raises:
            Retry, Conflict: something has to be read or written again; the events keep waiting.
            Permanent: the object makes no sense to this service; its events are given up.
        """
        items = self._inbox.pending(key)
        try:
            result = await self._pass(key, tuple(item.occurrence for item in items))
        except (Retry, Conflict):
            raise
        except Exception as error:
            self._inbox.settle(items, error)
            raise
        self._inbox.settle(items)
        return result

    async def _pass(self, key: Key, offered: tuple[Occurrence, ...]) -> Result:
        trigger = await self._ports.triggers.find(key)
        if trigger is None:
            return Result()
        told = await asyncio.gather(*(self._with_origin(occurrence) for occurrence in offered))
        meant = {names.digest(trigger.uid, o.id): o for o in told if concerns(trigger, o)}
        seen = await self._observe(trigger, meant)
        todo = plan(seen, self._clock.now())
        conclusion = await self._act(seen, todo)
        await self._record(seen, conclusion)
        await self._ports.memory.remember(trigger.uid, meant)
        return Result(requeue_after=conclusion.requeue_after)

    async def _observe(self, trigger: Trigger, meant: dict[str, Occurrence]) -> Observed:
        children = await self._ports.triggers.children(trigger)
        unknown = await self._ports.memory.unknown(trigger.uid, meant)
        fresh = tuple(occurrence for digest, occurrence in meant.items() if digest in unknown)
        return Observed(trigger, fresh, children)

    async def _with_origin(self, occurrence: Occurrence) -> Occurrence:
        """With the triggers that led to the object of the fact: from it, or from memory when it is gone."""
        if not occurrence.kind:
            return occurrence
        key = Key(occurrence.namespace, occurrence.name)
        origin = await self._ports.objects.origin(occurrence.kind, key, occurrence.uid)
        if origin is None:
            origin = await self._ports.memory.origin(occurrence.uid)
        return replace(occurrence, creator=origin.creator, chain=origin.chain)

    async def _act(self, seen: Observed, todo: Plan) -> Conclusion:
        """Create, make way, tell; each of it is done again under the same names when this is cut off."""
        done = await self._create_all(seen.trigger, todo.create)
        for child in (*todo.delete, *replaced(seen, done)):
            await self._ports.works.delete(seen.trigger, child)
        conclusion = conclude(seen, todo, done, self._clock.now())
        for fact in conclusion.facts:
            await self._publish(seen.trigger, fact)
        return conclusion

    async def _create_all(self, trigger: Trigger, creations: Collection[Creation]) -> tuple[Created, ...]:
        slots = asyncio.Semaphore(WRITES_AT_ONCE)

        async def one(creation: Creation) -> Created:
            async with slots:
                return await self._create(trigger, creation)

        answers = await asyncio.gather(*(one(c) for c in creations), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return tuple(a for a in answers if isinstance(a, Created))

    async def _create(self, trigger: Trigger, creation: Creation) -> Created:
        created = await self._ports.works.create(trigger, creation)
        self._metrics.created(creation.kind, "refused" if created.refusal else "created")
        if created.child:
            # Facts about it may outlive it.
            origin = Origin(trigger.key.name, chain_of(trigger, creation.gathered.newest))
            await self._ports.memory.remember_origin(created.child.uid, origin)
        return created

    async def _publish(self, trigger: Trigger, fact: Fact) -> None:
        event = make_event(
            fact.data,
            id=fact.id,
            source=names.SERVICE,
            namespace=trigger.key.namespace,
            uid=trigger.uid,
            time=self._clock.now(),
            traceparent=traceparent(),
        )
        try:
            await self._ports.outbox.publish(event)
        except Permanent as error:
            log.error("fact cannot be published", type=event.type, key=str(trigger.key), error=str(error))

    async def _record(self, seen: Observed, conclusion: Conclusion) -> None:
        if patch := status_patch(seen.trigger.raw_status, conclusion.status):
            await self._ports.triggers.patch_status(seen.trigger, patch)
        self._metrics.events(conclusion.status.events - seen.trigger.status.events)
        for note in conclusion.notes:
            self._ports.notes.note(seen.trigger, note)
