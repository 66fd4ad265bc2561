"""Bus messages become events in triggers' inboxes; nothing is decided here."""

from __future__ import annotations

import asyncio

from paddlewheel.bus import streams
from paddlewheel.bus.ports import Delivery, Subscription
from trigger_controller.domain.matching import read_occurrence
from trigger_controller.inbox import Inbox
from trigger_controller.ports import Triggers

SUBSCRIPTIONS = tuple(
    Subscription(f"trigger-controller-{name}", stream.name, stream.subjects, max_in_flight=32)
    for name, stream in (
        ("jobs", streams.JOBS),
        ("datasets", streams.DATASETS),
        ("sources", streams.SOURCES),
    )
)
"""One durable consumer for each stream, whatever the number of triggers."""


class Events:
    """Hands every event to the triggers it may concern, and waits until they have dealt with it."""

    def __init__(self, triggers: Triggers, inbox: Inbox) -> None:
        self._triggers = triggers
        self._inbox = inbox

    async def handle(self, delivery: Delivery) -> None:
        """Return when every trigger has the event, so that the message may go."""
        occurrence = read_occurrence(delivery.event, delivery.published_at)
        if occurrence is None or not (keys := self._triggers.candidates(occurrence)):
            return
        offers = (self._inbox.offer(key, occurrence) for key in keys)
        outcomes = await asyncio.gather(*offers, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
