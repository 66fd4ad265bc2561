"""Act, publish, record: the half of a reconcile that both kinds share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from dataset_controller.domain.actions import Notice
from dataset_controller.domain.journal import after_effects
from dataset_controller.domain.names import SOURCE
from dataset_controller.domain.objects import key_of, merge_patch, status_of, uid_of, version_of
from dataset_controller.domain.outcome import Plan, S
from dataset_controller.domain.sampleset.policies.ownership import SHORT
from dataset_controller.domain.text import parse_stamp
from dataset_controller.effects import Applied, BusLine, Effects
from dataset_controller.metrics import Metrics
from dataset_controller.ports import DataBus, DataCluster, Recorder
from dataset_controller.view import View
from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.control.controller import Result
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.telemetry import traceparent
from paddlewheel.kube.ports import Object, Resource

log = structlog.get_logger(__name__)

BUS_RETRY = 5.0
"""Seconds after which what the bus did not take is tried again."""
REFUSED_RETRY = 30.0
"""Seconds after which what the API server refused is tried again."""


@dataclass(frozen=True)
class Outside:
    """Everything a performer touches."""

    cluster: DataCluster
    view: View
    bus: DataBus
    line: BusLine
    effects: Effects
    recorder: Recorder
    metrics: Metrics
    clock: Clock


class Performer:
    """Carries out plans of one kind."""

    def __init__(self, resource: Resource, outside: Outside) -> None:
        self._resource = resource
        self._out = outside

    async def perform(
        self, obj: Object, todo: Plan[S], tell: Callable[[str, S], WireModel]
    ) -> tuple[Result, bool]:
        """Do it all; the bus being away delays facts and records, nothing else.

        Args:
            tell: the message of a pending fact.

        Returns:
            When to look again, and whether the status was written.

        Raises:
            Retry, Conflict: something has to be read or written again.
        """
        applied = await self._out.effects.apply(uid_of(obj), todo.actions)
        status = await self._announce(obj, todo, applied, tell)
        is_settled = not applied.is_bus_away and (status is None or not status.journal.pending)
        written = False
        if todo.release is not None and (is_settled or todo.release_anyway):
            await self._out.effects.patch(self._resource, todo.release)
        elif status is not None:
            written = await self._record(obj, status)
        self._note(obj, todo, applied, written)
        if applied.error is not None:
            raise applied.error
        return Result(_next_look(todo.requeue_after, applied, is_settled)), written

    async def _announce(
        self, obj: Object, todo: Plan[S], applied: Applied, tell: Callable[[str, S], WireModel]
    ) -> S | None:
        if todo.status is None:
            return None
        journal = after_effects(todo.status.journal, applied.refusal, self._out.clock.now())
        status = todo.status.with_journal(journal)
        published = [a for a in journal.pending if await self._publish(obj, a, tell(a.fact, status))]
        return status.with_journal(journal.confirmed(tuple(published)))

    async def _publish(self, obj: Object, fact: Announcement, data: WireModel) -> bool:
        """True when the fact needs no more telling."""
        try:
            await self._out.line.call(self._out.bus.facts.publish(self._event(obj, fact, data)))
        except Retry as error:
            log.info("fact stays pending", fact=fact.fact, key=str(key_of(obj)), error=str(error))
            self._out.metrics.announced(fact.fact, "pending")
            return False
        except Permanent as error:
            log.error("fact cannot be published", fact=fact.fact, key=str(key_of(obj)), error=str(error))
            self._out.metrics.announced(fact.fact, "refused")
            return True
        self._out.metrics.announced(fact.fact, "published")
        return True

    def _event(self, obj: Object, fact: Announcement, data: WireModel) -> Event:
        return make_event(
            data,
            id=fact.event_id(uid_of(obj)),
            source=SOURCE,
            namespace=key_of(obj).namespace,
            uid=uid_of(obj),
            time=parse_stamp(fact.at) or self._out.clock.now(),
            traceparent=traceparent(),
        )

    async def _record(self, obj: Object, status: S) -> bool:
        """At most one patch; none when nothing changed."""
        patch = merge_patch(status_of(obj), status.render())
        if not patch:
            return False
        body = {"metadata": {"resourceVersion": version_of(obj)}, "status": patch}
        answer = await self._out.cluster.patch(self._resource, key_of(obj), body, subresource="status")
        self._out.view.wrote(self._resource, answer)
        return True

    def _note(self, obj: Object, todo: Plan[S], applied: Applied, written: bool) -> None:
        """Kubernetes events come after the write they tell of; what was not written is told next time."""
        notices = [
            Notice("Normal", f"Create{SHORT.get(k, k)}Successfully", f"{k} created") for k in applied.created
        ]
        if applied.refusal and written:
            notices.append(Notice("Warning", *applied.refusal))
        notices += todo.notices if written else ()
        for kind in applied.created:
            self._out.metrics.created(kind)
        for notice in notices:
            say = self._out.recorder.warning if notice.type == "Warning" else self._out.recorder.normal
            say(self._resource, obj, notice.reason, notice.message)


def _next_look(wanted: float | None, applied: Applied, is_settled: bool) -> float | None:
    waits = [wanted, None if is_settled else BUS_RETRY, REFUSED_RETRY if applied.refusal else None]
    return min((wait for wait in waits if wait is not None), default=None)
