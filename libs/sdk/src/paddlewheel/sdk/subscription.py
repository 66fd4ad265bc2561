"""Subscriptions: `events(...)`, and its parts for callers that have their own connection to the bus."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from paddlewheel.bus import Access, connect
from paddlewheel.bus.admin.teams import READER_PREFIX
from paddlewheel.bus.ports import OtherSelection, Reader, Reading
from paddlewheel.sdk.access import resolve_access
from paddlewheel.sdk.errors import InvalidArgument
from paddlewheel.sdk.model import Event, received
from paddlewheel.sdk.moment import BEGINNING, Since, moment
from paddlewheel.sdk.narrowing import JobNarrowing
from paddlewheel.sdk.selection import Selection, Type, Wish, select

_REMEMBERED = 10_000
"""Ids of events that are kept to detect repeated events; described in `events`."""
_DURABLE = re.compile(r"[A-Za-z0-9_-]{1,48}")


@dataclass(frozen=True)
class Query:
    """The checked arguments of `events`."""

    selection: Selection
    reading: Reading


def query(
    wish: Wish,
    *,
    since: Since = None,
    durable: str = "",
    follow: bool = True,
    open_within: float | None = None,
) -> Query:
    """Check the arguments of `events`. Raises InvalidArgument."""
    if durable and not _DURABLE.fullmatch(durable):
        remedy = "pass 1 to 48 of A-Z a-z 0-9 _ -"
        raise InvalidArgument("durable", f"{durable!r} is not a name for a durable subscription", remedy)
    began = moment(since, datetime.now(UTC))
    if not follow and began is None:
        began = BEGINNING
    wish = wish.listed()
    selection = select(wish)
    reading = Reading(
        selection.subjects,
        began,
        follow,
        durable=f"{READER_PREFIX}{durable}" if durable else "",
        selection=str(wish),
        selection_key=wish.key,
        open_within=open_within,
    )
    return Query(selection, reading)


def events(
    *,
    job: str = "",
    sample_set: str = "",
    sample_job: str = "",
    paddle_service: str = "",
    service: str = "",
    context: str | Iterable[str] = (),
    types: Type | Iterable[Type] = (),
    since: Since = None,
    durable: str = "",
    follow: bool = True,
    url: str | None = None,
    tls_dir: str | Path | None = None,
    creds_file: str | Path | None = None,
    open_within: float | None = None,
) -> AsyncGenerator[Event, None]:
    """Subscribe to facts: `async for event in paddlewheel.events(...)`. Without arguments, to all new facts.

    Order: events of one object are yielded in the order in which they happened, if they are in one stream.
    These have streams of their own: the cache of a SampleSet, the progress of its runs, the measurements of a
    PaddleService, and the progress of a PaddleJob. Stored events of several streams are merged by time,
    unless `durable` is given. New events are yielded as they arrive.

    Repeats: an event that was stored twice is yielded once, unless 10,000 other events are between them.

    Failures: lost connections, restarted servers and recreated streams do not end the loop. docs/events.md
    describes the order of events after a stream was recreated.

    An account that is in no team, but may watch namespaces, names them in NATS_NAMESPACES. It receives their
    facts while it is connected, so it passes neither `since` nor `durable`.

    Args:
        job: a PaddleJob, "namespace/name", or all jobs of a namespace, "namespace/*". The job may be deleted,
            or not created yet. If several jobs had the name one after the other, `event.object.uid`
            distinguishes them. Without `types`, the server filters by the job: it delivers at most two events
            of each other job.
        sample_set: a SampleSet and its cache, in the same form.
        sample_job: a SampleJob, in the same form.
        paddle_service: a PaddleService, in the same form. If several objects are given, the facts about all
            of them are selected. All other arguments narrow the selection.
        service: the service that publishes the facts, e.g. "job-controller"; default: all services.
        context: contexts of the facts: jobs, progress, datasets, cache, cacheprogress, models, serving,
            measurements, triggers; default: all contexts.
        types: types of the facts, as classes or names, e.g. JobSucceeded or "JobFailed"; default: all types.
        since: where to start, by the time of storage: a datetime with a zone, a timedelta, "10m", "1d12h" or
            "all"; default: now, or the oldest stored event if `follow` is False.
        durable: a name under which the server stores the position, so that the next call continues there. An
            event is acknowledged when the loop requests the next one. After a crash, a `break` or an
            exception, the last event is delivered again before any later one, within 5 s of a crash. `since`
            applies to the first call only. Processes with the same name share the events of each stream, one
            event at a time, in order. A name must always be used with the same selection. The server stores
            it as the consumer `sub-<durable>` of each selected stream (PW_JOBS, PW_PROGRESS, PW_DATASETS,
            PW_CACHE, PW_CACHEPROGRESS, PW_MODELS, PW_SERVING, PW_MEASUREMENTS, PW_TRIGGERS), and deletes it
            after 30 days without a reader.
        follow: whether to wait for new events; False ends the loop after the stored events.
        url: address of the bus; default: the variable NATS_URL.
        tls_dir: folder with ca.crt; default: the variable NATS_TLS_DIR.
        creds_file: NATS credentials; default: the variable NATS_CREDS.
        open_within: seconds after which an unreachable bus raises an error; None waits without a limit.

    Raises:
        InvalidArgument: an argument is invalid; raised at once. The message names the parameter and what to
            pass instead. Raised from the loop if `durable` was created for another selection.
        paddlewheel.core.errors.Permanent: the server's certificate has another name or another authority
            at the first connection, or all selected facts are about namespaces that are not in
            NATS_NAMESPACES; raised from the loop.
        paddlewheel.core.errors.Retry: the bus was unreachable for `open_within` seconds; raised from the
            loop.
    """
    wish = Wish(job, sample_set, sample_job, paddle_service, service, context, types)
    asked = query(wish, since=since, durable=durable, follow=follow, open_within=open_within)
    access = resolve_access(url, tls_dir, creds_file)
    if access.namespaces and not asked.reading.is_live:
        given = "durable" if durable else "follow" if not follow else "since"
        raise InvalidArgument(
            given,
            "NATS_NAMESPACES gives live facts only",
            f"omit {given}, or join a team (NATS_TEAM)",
        )
    return subscribe(access, asked)


async def subscribe(access: Access, asked: Query) -> AsyncGenerator[Event, None]:
    """Read events with a connection of its own.

    Args:
        access: address and credentials of the bus.
        asked: the checked arguments.
    """
    # Do not wait for the connection here: `open_within`, and a subscription from now on, begin at once.
    bus = await connect(access, name="paddlewheel-subscriber", wait=False)
    try:
        async with aclosing(read(bus, asked)) as found:
            async for event in found:
                yield event
    finally:
        await bus.close()


async def read(bus: Reader, asked: Query) -> AsyncGenerator[Event, None]:
    """Read events over the caller's connection, which stays open."""
    seen, job = _Seen(), asked.selection.job
    refine = JobNarrowing(bus, asked.selection, job, is_shared=bool(asked.reading.durable)) if job else None
    async with aclosing(bus.read(replace(asked.reading, refine=refine))) as deliveries:
        try:
            async for delivery in deliveries:
                event = received(delivery)
                if asked.selection.wants(event) and seen.is_new(event.id):
                    yield event
        except OtherSelection as error:
            name = asked.reading.durable.removeprefix(READER_PREFIX)
            problem = f"{name!r} was created to read {error.kept}, not {asked.reading.selection}"
            raise InvalidArgument("durable", problem, "pass the same selection, or another name") from error


class _Seen:
    """The ids of the last events, of which a bounded number is kept."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def is_new(self, id_: str) -> bool:
        if id_ in self._ids:
            return False
        self._ids[id_] = None
        if len(self._ids) > _REMEMBERED:
            self._ids.popitem(last=False)
        return True
