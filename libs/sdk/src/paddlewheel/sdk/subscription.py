"""The subscription itself: `events(...)`, and its parts for those who bring their own bus."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from paddlewheel.bus import Access, connect
from paddlewheel.bus.ports import Reader, Reading
from paddlewheel.sdk.access import access
from paddlewheel.sdk.errors import InvalidArgument
from paddlewheel.sdk.model import Event, received
from paddlewheel.sdk.moment import BEGINNING, Since, moment
from paddlewheel.sdk.narrowing import JobNarrowing
from paddlewheel.sdk.selection import Selection, Type, Wish, select

DURABLE_PREFIX = "sub-"
"""Before every durable name on the server, so that none is ever a service's own."""

_REMEMBERED = 10_000
"""Event ids kept to tell repeats."""
_DURABLE = re.compile(r"[A-Za-z0-9_-]{1,48}")


@dataclass(frozen=True)
class Query:
    """A checked question to the bus."""

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
        raise InvalidArgument("durable", f"{durable!r} is no name for a durable subscription", remedy)
    began = moment(since, datetime.now(UTC))
    if not follow and began is None:
        began = BEGINNING
    selection = select(wish)
    name = f"{DURABLE_PREFIX}{durable}" if durable else ""
    return Query(selection, Reading(selection.subjects, began, follow, name, open_within))


def events(
    *,
    job: str = "",
    sample_set: str = "",
    sample_job: str = "",
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
    """The facts that the services publish, as they come: `async for event in paddlewheel.events(...)`.

    Events of one object come in the order they happened; stored ones of all objects by time. One event comes
    once in a loop, by its id. Lost connections, restarted servers and streams made anew are got over.

    Args:
        job: "namespace/name" of a PaddleJob, "namespace/*" for all; also a deleted one. Objects that had
            one name after each other are all told about: `event.object.uid` tells them apart.
        sample_set: the same for a SampleSet, with what its cache does.
        sample_job: the same for a SampleJob. Several objects add up, everything else narrows.
        service: only what this service publishes, "job-controller" for example.
        context: only facts of these contexts: jobs, datasets, cache, triggers.
        types: only these facts, by class or name: JobSucceeded, "JobFailed".
        since: how far back to begin: a datetime with its zone, a timedelta, "10m", "1d12h", "all", or None =
            with what comes from now on (without `follow`: with everything stored).
        durable: a name under which the server remembers how far you came. An event is acknowledged when the
            loop asks for the next one, so after a crash, a `break` or an exception the last one comes again,
            before any later one, at the latest 5 s after a crash. `since` counts the first time only.
            Processes with the same name share the events, one at a time, in order. On the server it is the
            consumer `sub-<durable>` of each stream read (PW_JOBS, PW_DATASETS, PW_CACHE, PW_TRIGGERS), kept
            for 30 days without a reader. Use a name for one selection only.
        follow: False ends the loop when all that is stored was read.
        url: of the bus; NATS_URL if not given.
        tls_dir: folder with ca.crt, tls.crt and tls.key; NATS_TLS_DIR if not given.
        creds_file: NATS credentials; NATS_CREDS if not given.
        open_within: seconds after which a bus that cannot be read raises; None waits for it.

    Raises:
        InvalidArgument: (a ValueError) at once, naming the parameter and what to pass instead.
        paddlewheel.core.errors.Retry: from the loop, after `open_within` seconds without the bus.
    """
    wish = Wish(job, sample_set, sample_job, service, context, types)
    asked = query(wish, since=since, durable=durable, follow=follow, open_within=open_within)
    way = access(url, tls_dir, creds_file)
    return subscribe(way, asked)


async def subscribe(way: Access, asked: Query) -> AsyncGenerator[Event, None]:
    """`events` with a connection of the caller's choice, which is closed at the end."""
    bus = await connect(way, name="paddlewheel-subscriber")
    try:
        async with aclosing(read(bus, asked)) as found:
            async for event in found:
                yield event
    finally:
        await bus.close()


async def read(bus: Reader, asked: Query) -> AsyncGenerator[Event, None]:
    """`events` over a bus that the caller keeps."""
    seen, job = _Seen(), asked.selection.job
    refine = JobNarrowing(bus, asked.selection, job, is_shared=bool(asked.reading.durable)) if job else None
    async with aclosing(bus.read(replace(asked.reading, refine=refine))) as deliveries:
        async for delivery in deliveries:
            event = received(delivery)
            if asked.selection.wants(event) and seen.is_new(event.id):
                yield event


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
