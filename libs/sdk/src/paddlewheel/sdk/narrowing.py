"""One job among many: its facts are selected on the server by uid, once its name has been resolved.

No subject carries a name, so a reader begins with the facts of the whole namespace. The first fact of another
object shows that the namespace is busy: then the stored first facts of all its jobs are read once, which
gives the uids that the name has had, and from there on the server delivers only what these uids and the first
facts of other jobs select. A first fact under the name adds a uid: that of a job that was deleted and created
again. Until the name is known, the job may not exist yet and nothing is narrowed.
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
"""A name that has had more uids is not narrowed: the server compares every fact with every filter."""


def _fact(type_: object) -> EventSubject:
    return parse_event_subject(event_subject(type_, "any", "any"))  # type: ignore[arg-type]


_FACTS = tuple(fact for fact in map(_fact, EVENTS) if (fact.context, fact.entity) == ("jobs", "job"))
_FIRST = (_fact(JobAccepted), _fact(JobDeleted))
"""One of these is the first fact of every job; a job that was never accepted has only the second. Tests of
the job-controller fail when another fact comes first."""


class JobNarrowing:
    """`Reading.refine` of a selection with one job.

    Every answer is computed from what is stored at that moment, because several processes may share a durable
    and each of them sees only a part of the events.
    """

    def __init__(self, bus: Reader, selection: Selection, job: Scope, *, is_shared: bool) -> None:
        self._bus = bus
        self._job = job
        self._is_shared = is_shared
        own = {*job.subjects(_FACTS), event_filter(job.context, job.entity, namespace=job.namespace)}
        self._others = tuple(subject for subject in selection.subjects if subject not in own)
        self._uids: frozenset[str] | None = None
        """What the name was last resolved to; None = not resolved yet."""

    async def __call__(self, delivery: Delivery) -> tuple[str, ...] | None:
        """The subjects to read from this event on; None = as before."""
        place = parse_event_subject(delivery.subject)
        if place.context != self._job.context or (self._uids and len(self._uids) > _MAX_UIDS):
            return None
        if self._job.holds(received(delivery)):
            return await self._narrowed(place.uid) if self._is_news(place.uid) else None
        is_expected = self._uids == frozenset() or is_first(place)
        return None if is_expected else await self._narrowed()

    def _is_news(self, uid: str) -> bool:
        """What others have narrowed may lack it; what nobody has narrowed has it."""
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
        """Uids that the name has had, as far back as the stream goes."""
        reading = Reading(tuple(self._job.subjects(_FIRST)), BEGINNING, follow=False)
        async with aclosing(self._bus.read(reading)) as deliveries:
            events = [received(delivery) async for delivery in deliveries]
        return frozenset(event.object.uid for event in events if self._job.holds(event))


def is_first(fact: EventSubject) -> bool:
    """It may be the first fact of its job."""
    return any((fact.entity, fact.fact) == (first.entity, first.fact) for first in _FIRST)
