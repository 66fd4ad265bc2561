"""Act, publish, record: the half of a reconcile that both kinds share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from dataset_controller.domain.actions import Notice
from dataset_controller.domain.journal import after_effects
from dataset_controller.domain.names import SOURCE
from dataset_controller.domain.objects import key_of, merge_patch, status_of, uid_of, version_of
from dataset_controller.domain.outcome import Plan, S
from dataset_controller.domain.sampleset.policies.ownership import SHORT
from dataset_controller.domain.text import parse_stamp
from dataset_controller.effects import Applied, Effects
from dataset_controller.metrics import Metrics
from dataset_controller.ports import DataCluster, Outbox, Recorder
from dataset_controller.view import View
from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.control.controller import Result
from paddlewheel.core.clock import Clock
from paddlewheel.core.telemetry import traceparent
from paddlewheel.kube.ports import Object, Resource
from paddlewheel.operator.outbox import FactSource, Republished

BUS_RETRY = 5.0
"""Seconds after which what the bus did not take is tried again."""
REFUSED_RETRY = 30.0
"""Seconds after which what the API server refused is tried again."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

Tell = Callable[[str, S], WireModel | None]
"""The message of a fact, told with what is known now; None for a fact that this version does not know."""


@dataclass(frozen=True)
class Outside:
    """Everything a performer touches."""

    cluster: DataCluster
    view: View
    outbox: Outbox
    effects: Effects
    recorder: Recorder
    metrics: Metrics
    clock: Clock


class Performer:
    """Carries out plans of one kind."""

    def __init__(self, resource: Resource, outside: Outside) -> None:
        self._resource = resource
        self._out = outside

    async def perform(self, obj: Object, todo: Plan[S], tell: Tell[S]) -> tuple[Result, bool]:
        """Do it all; the bus being away delays facts and records, nothing else.

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

    async def republish(self, obj: Object, status: S, tell: Tell[S], everything: bool) -> Republished:
        """Bring back what the bus has lost of the object's facts; nothing is written. Raises Retry."""
        source = self._source(obj, status, tell)
        return await self._out.outbox.republish(source, status.journal.announcements, everything=everything)

    async def _announce(self, obj: Object, todo: Plan[S], applied: Applied, tell: Tell[S]) -> S | None:
        if todo.status is None:
            return None
        journal = after_effects(todo.status.journal, applied.refusal, self._out.clock.now())
        status = todo.status.with_journal(journal)
        told = await self._out.outbox.tell(self._source(obj, status, tell), journal.announcements)
        return status.with_journal(journal.with_announcements(told))

    def _source(self, obj: Object, status: S, tell: Tell[S]) -> FactSource:
        def render(fact: Announcement) -> Event | None:
            data = tell(fact.fact, status)
            return None if data is None else self._event(obj, fact, data)

        created = parse_stamp(str(obj["metadata"].get("creationTimestamp") or "")) or _LONG_AGO
        return FactSource(key_of(obj), uid_of(obj), created, render)

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
