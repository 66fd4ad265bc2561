"""Watches objects, consumes events, and finds the triggers that a change or an event concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from paddlewheel.bus import streams
from paddlewheel.bus.ports import Delivery, Subscription
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import controller_id, controller_of, key_of
from paddlewheel.kube.ports import PADDLE_JOBS, SAMPLE_JOBS, TRIGGERS, Change, Object, Watches
from paddlewheel.operator.watch import Watch
from trigger_controller.catch_up import CatchUp
from trigger_controller.domain import names
from trigger_controller.domain.matching import index_value, index_values, read_occurrence
from trigger_controller.inbox import Inbox

CHILDREN = {names.SAMPLE_JOB: SAMPLE_JOBS, names.PADDLE_JOB: PADDLE_JOBS}
BY_OWNER = "owner"
BY_SOURCE = "source"

SUBSCRIPTIONS = tuple(
    Subscription(f"{names.SERVICE}-{name}", stream.name, stream.subjects, max_in_flight=32)
    for name, stream in (
        ("jobs", streams.JOBS),
        ("datasets", streams.DATASETS),
        ("sources", streams.SOURCES),
    )
)
"""One durable consumer for each stream, whatever the number of triggers."""


def make_watch(watches: Watches, namespace: str, clock: Clock) -> Watch:
    """Informers of triggers and of the objects that they created. `namespace` "" means all namespaces."""
    by_source, by_owner = {BY_SOURCE: index_values}, {BY_OWNER: controller_id}
    triggers = Informer(watches, TRIGGERS, namespace, clock=clock, indexes=by_source)
    children = {
        kind: Informer(
            watches, resource, namespace, clock=clock, label_selector=names.LABEL_TRIGGER, indexes=by_owner
        )
        for kind, resource in CHILDREN.items()
    }
    return Watch({names.TRIGGER: triggers, **children})


class Wakes:
    """Wakes the triggers that a change or an event concerns."""

    def __init__(
        self,
        watch: Watch,
        wake: Callable[[Key], None],
        inbox: Inbox,
        forget: Callable[[Object], None],
        catch_up: CatchUp,
    ) -> None:
        self._catch_up = catch_up
        self._watch = watch
        self._wake = wake
        self._inbox = inbox
        self._forget = forget

    def changed(self, kind: str, change: Change) -> None:
        """A watched object was added, modified or deleted."""
        if kind == names.TRIGGER:
            self._catch_up.changed()
        if kind == names.TRIGGER and change.type == "DELETED":
            self._forget(change.obj)
        if self._watch.of(kind).is_own(change):
            return
        if kind == names.TRIGGER:
            self._wake(key_of(change.obj))
        elif (owner := controller_of(change.obj)) and owner.get("kind") == names.TRIGGER:
            self._wake(Key(key_of(change.obj).namespace, str(owner["name"])))

    async def received(self, delivery: Delivery) -> None:
        """Handle a message.

        Return when all triggers that the event may concern have handled or deferred it.
        """
        occurrence = read_occurrence(delivery.event, delivery.published_at)
        if occurrence is None:
            return
        await self._catch_up.wait()
        triggers = self._watch.of(names.TRIGGER).by_index(BY_SOURCE, index_value(occurrence))
        await asyncio.gather(*(self._inbox.offer(key_of(trigger), occurrence) for trigger in triggers))
