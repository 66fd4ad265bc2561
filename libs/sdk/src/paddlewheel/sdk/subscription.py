"""The subscription: `events(...)`, and its parts for callers with a bus of their own."""

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
"""Event ids kept to recognize repeats; `events` tells."""
_DURABLE = re.compile(r"[A-Za-z0-9_-]{1,48}")


@dataclass(frozen=True)
class Query:
    """Validated arguments."""

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
    """The facts that the services publish: `async for event in paddlewheel.events(...)`.

    Events of one object are yielded in the order in which they happened, with three exceptions: those of a
    SampleSet, of its cache and the progress of its runs, those of a PaddleService and what was measured of
    its revisions, and those of a PaddleJob and the progress of its program, are in streams of their own.
    Stored events of several streams are merged by time, unless `durable` is given; new events are yielded as
    they arrive. An event that was stored twice is yielded once if fewer than 10,000 others lie between, by
    its id. Lost connections, restarted servers and recreated streams do not end the loop; docs/events.md says
    what a recreated stream does to the order.

    An account that is in no team, but may watch namespaces, names them in NATS_NAMESPACES. It receives their
    facts while it is connected, so it passes neither `since` nor `durable`.

    Args:
        job: "namespace/name" of a PaddleJob, existing, deleted or not created yet; "namespace/*" for all. If
            several had the name one after the other, `event.object.uid` distinguishes them. A job by name,
            without `types`, is filtered on the server: other jobs of its namespace cost two events each.
        sample_set: the same for a SampleSet and its cache.
        sample_job: the same for a SampleJob. Several objects are a union, all other arguments narrow it.
        paddle_service: the same for a PaddleService.
        service: only what this service publishes, "job-controller" for example.
        context: only facts of these contexts: jobs, progress, datasets, cache, cacheprogress,
            models, serving, measurements, triggers.
        types: only these facts, by class or name: JobSucceeded, "JobFailed".
        since: where to start, by the time of storage: a datetime with a zone, a timedelta, "10m", "1d12h",
            "all", or None = now (without `follow`: the oldest stored event).
        durable: a name under which the server stores the position. An event is acknowledged when the loop
            asks for the next one, so after a crash, a `break` or an exception the last one is delivered
            again, before any later one, at most 5 s after a crash. `since` applies the first time only.
            Processes with the same name share the events of each stream, one at a time, in order. On the
            server it is the consumer `sub-<durable>` of each stream read (PW_JOBS, PW_PROGRESS, PW_DATASETS,
            PW_CACHE, PW_CACHEPROGRESS, PW_MODELS, PW_SERVING, PW_MEASUREMENTS, PW_TRIGGERS), kept for
            30 days without a reader. A name is for one selection only.
        follow: False ends the loop after the stored events.
        url: address of the bus; default NATS_URL.
        tls_dir: folder with ca.crt; default NATS_TLS_DIR.
        creds_file: NATS credentials; default NATS_CREDS.
        open_within: seconds after which an unreachable bus raises; None waits for it.

    Raises:
        InvalidArgument: (a ValueError) at once, with the parameter and a remedy; from the loop when `durable`
            was created for another selection.
        paddlewheel.core.errors.Permanent: from the loop, when the server's certificate has another name or
            another authority at the first connection; or when all selected facts are of namespaces that are
            not in NATS_NAMESPACES.
        paddlewheel.core.errors.Retry: from the loop, after `open_within` seconds without the bus.
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
    """`events` with an access of the caller's choice."""
    # The reading waits: `open_within` and "from now on" begin here, not when the bus answers.
    bus = await connect(access, name="paddlewheel-subscriber", wait=False)
    try:
        async with aclosing(read(bus, asked)) as found:
            async for event in found:
                yield event
    finally:
        await bus.close()


async def read(bus: Reader, asked: Query) -> AsyncGenerator[Event, None]:
    """`events` on a bus of the caller, which stays open."""
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
    """The latest ids, bounded."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def is_new(self, id_: str) -> bool:
        if id_ in self._ids:
            return False
        self._ids[id_] = None
        if len(self._ids) > _REMEMBERED:
            self._ids.popitem(last=False)
        return True
