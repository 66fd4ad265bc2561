"""Narrows a subscription to one job, so that the server does not deliver the facts of all jobs in its
namespace.

Subjects contain uids, not names. So a subscription to a job by name begins with the facts of its whole
namespace. When it receives a fact of another object, it reads the stored first facts of all jobs in the
namespace once, and gets the uids of all jobs that have had the name. From then on, the server delivers only
facts of these uids, and the first facts of other jobs. A first fact with the job's name adds a uid: the job
was deleted and created again. As long as no job has the name, nothing is narrowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing

from paddlewheel.bus.ports import Delivery, Reader, Reading
from paddlewheel.contracts.generated.jobs_v1 import JobAccepted, JobDeleted
from paddlewheel.contracts.generated.registry import EVENTS
from paddlewheel.contracts.subjects import EventSubject, event_filter, event_subject, parse_event_subject
from paddlewheel.sdk.model import received
from paddlewheel.sdk.moment import BEGINNING
from paddlewheel.sdk.selection import Scope, Selection

_MAX_UIDS = 20
"""Uids of one name, at most. With more of them nothing is narrowed, because the server compares each fact
with each filter."""


def _fact(type_: object) -> EventSubject:
    return parse_event_subject(event_subject(type_, "any", "any"))  # type: ignore[arg-type]


_FACTS = tuple(fact for fact in map(_fact, EVENTS) if (fact.context, fact.entity) == ("jobs", "job"))
_FIRST = (_fact(JobAccepted), _fact(JobDeleted))
"""The facts with which the facts of a job can begin. A job that was never accepted has only the second. Tests
of job-controller check this."""


class JobNarrowing:
    """Narrows the subjects of a subscription to one job: the `Reading.refine` of its selection.

    Several processes may share a durable, and each of them receives only a part of the events. So each result
    is computed from the facts that the stream has at that time.
    """

    def __init__(self, bus: Reader, selection: Selection, job: Scope, *, is_shared: bool) -> None:
        self._bus = bus
        self._job = job
        self._is_shared = is_shared
        own = {*job.subjects(_FACTS), event_filter(job.context, job.entity, namespace=job.namespace)}
        self._others = tuple(subject for subject in selection.subjects if subject not in own)
        self._uids: frozenset[str] | None = None
        """The uids of the name when they were last read; None = not read yet."""

    async def __call__(self, delivery: Delivery) -> tuple[str, ...] | None:
        """The subjects to read after this event; None = the same as before."""
        place = parse_event_subject(delivery.subject)
        if place.context != self._job.context or (self._uids and len(self._uids) > _MAX_UIDS):
            return None
        if self._job.holds(received(delivery)):
            return await self._narrowed(place.uid) if self._is_news(place.uid) else None
        is_expected = self._uids == frozenset() or is_first(place)
        return None if is_expected else await self._narrowed()

    def _is_news(self, uid: str) -> bool:
        """Whether the present subjects may not include the uid.

        Subjects that were never narrowed include all uids, unless another process has narrowed a shared
        durable.
        """
        if self._uids is None:
            return self._is_shared
        return uid not in self._uids

    async def _narrowed(self, *seen: str) -> tuple[str, ...] | None:
        self._uids = await self._resolve() | frozenset(seen)
        if not 0 < len(self._uids) <= _MAX_UIDS:
            return None
        return (*self._others, *self._subjects(self._uids))

    def _subjects(self, uids: Iterable[str]) -> Iterable[str]:
        job = self._job
        for fact in _FACTS:
            wanted = ("*",) if fact in _FIRST else sorted(uids)
            for uid in wanted:
                yield event_filter(
                    fact.context, fact.entity, fact.fact, job.namespace, uid, version=fact.version
                )

    async def _resolve(self) -> frozenset[str]:
        """The uids of all jobs with the name whose first fact is still in the stream."""
        reading = Reading(tuple(self._job.subjects(_FIRST)), BEGINNING, follow=False)
        async with aclosing(self._bus.read(reading)) as deliveries:
            events = [received(delivery) async for delivery in deliveries]
        return frozenset(event.object.uid for event in events if self._job.holds(event))


def is_first(fact: EventSubject) -> bool:
    """Whether the fact can be the first one of its job."""
    return any((fact.entity, fact.fact) == (first.entity, first.fact) for first in _FIRST)
