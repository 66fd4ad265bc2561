"""`paddlewheel bus`: the state of the bus, restoring lost facts, and the history of a job."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated

import typer

from paddlewheel.bus import Access
from paddlewheel.bus.admin.inspect import BusStatus, DurableStatus, StreamStatus, unread_replays
from paddlewheel.bus.admin.mirrors import MirrorStatus
from paddlewheel.bus.admin.permissions import OPERATOR, ROLES, SUBSCRIBER
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import DEAD_LETTERS, stream_named
from paddlewheel.cli import letters
from paddlewheel.cli.events import as_option, describe_fact, json_line
from paddlewheel.cli.on_bus import connected, open_access, operated
from paddlewheel.cli.output import (
    Format,
    Output,
    amount,
    print_json,
    print_line,
    print_styled,
)
from paddlewheel.cli.table import Table, print_page, print_table
from paddlewheel.cli.target import Where, on_cluster
from paddlewheel.contracts.generated.bus_v1 import Rebuild, RebuildReport
from paddlewheel.contracts.subjects import command_subject
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import PaddlewheelError
from paddlewheel.sdk.errors import InvalidArgument
from paddlewheel.sdk.model import Event
from paddlewheel.sdk.selection import Wish
from paddlewheel.sdk.subscription import Query, query, read

SERVICES = tuple(role.name for role in ROLES if role.answers_commands)
_CROWDED = 90.0
"""Percent from which a stream that refuses more when full is a fault."""
_MAKER = "bus-installer, which checks every few seconds,"
_ELSE = (
    "if not, `kubectl --namespace paddle-system logs deployment/bus-installer` shows why; without one, on a "
    "server of your own, run `paddlewheel bus install`"
)

app = typer.Typer(
    add_completion=False,
    help="""The message bus: its state and its content.

[bold]Examples[/bold]

[cyan]paddlewheel bus status[/cyan]  streams, consumers, dead letters; exit code 1 when something is wrong

[cyan]paddlewheel bus install[/cyan]  create the streams on a NATS server of your own

[cyan]paddlewheel bus rebuild[/cyan]  republish the facts that the streams have lost

[cyan]paddlewheel bus replay --job team-a/resnet[/cyan]  all facts about a job, even a deleted one
""",
    no_args_is_help=True,
)


@dataclass(frozen=True)
class Look:
    """The observed state of the bus.

    Attributes:
        dead_letters: their number by consumer.
    """

    status: BusStatus
    dead_letters: Mapping[str, int]

    @property
    def faults(self) -> list[str]:
        """Problems, each with what to do about it."""
        unread = (letters.unread(replays) for replays in unread_replays(self.status))
        faults = (*self._missing(), *self._drifted(), *self._crowded(), *self._unfed(), *self._unhandled())
        return [*faults, *unread]

    def _missing(self) -> Iterator[str]:
        for name in self.status.missing:
            yield f"stream {name} is missing: {_MAKER} creates it; {_ELSE}"

    def _drifted(self) -> Iterator[str]:
        for stream in self.status.streams:
            if stream.drift:
                differs = f"stream {stream.name} differs in {', '.join(stream.drift)}"
                yield f"{differs}: {_MAKER} corrects that; {_ELSE}"

    def _crowded(self) -> Iterator[str]:
        for stream in self.status.streams:
            if stream_named(stream.name).discard == "new" and _percent(stream) >= _CROWDED:
                yield f"stream {stream.name} is {_percent(stream):.0f} % full; a full one refuses messages"

    def _unfed(self) -> Iterator[str]:
        for mirror in self.status.mirrors:
            if mirror.trouble:
                yield f"copy of {mirror.stream} for team {mirror.team}: {mirror.trouble}"

    def _unhandled(self) -> Iterator[str]:
        for durable, count in self.dead_letters.items():
            advice = f"`paddlewheel dlq list --durable {durable}` shows why"
            yield f"{count} dead letter{'s' * (count > 1)} of {durable}: {advice}"


@dataclass(frozen=True)
class Answer:
    """The answers of the replicas of one service to `rebuild`; `problem` is "" on success."""

    service: str
    replicas: tuple[RebuildReport, ...] = ()
    problem: str = ""


@app.command("status")
@on_cluster(namespaced=False)
def bus_status(where: Where, output: Output = Format.TEXT) -> None:
    """Show streams, consumers and dead letters; exit code 1 when something is wrong.

    NATS_MONITOR_URL is the address of the server's monitor, which reports whether the server writes to disk
    before it acknowledges.
    """
    seen = asyncio.run(_look(where))
    if output is Format.JSON:
        found = {"dead_letters": seen.dead_letters, "faults": seen.faults}
        print_json({**asdict(seen.status), **found})
    else:
        _print_look(seen)
    if seen.faults:
        raise typer.Exit(1)


@app.command("install")
@on_cluster(namespaced=False)
def bus_install(
    where: Where,
    replicas: Annotated[int, typer.Option(min=1, max=5, help="Copies of every stream.")] = 1,
    output: Output = Format.TEXT,
) -> None:
    """Create the streams and the consumers of the services, and correct streams and consumers that differ.

    Use it for a NATS server of your own. The chart runs bus-installer, which does the same continuously.
    """
    status = asyncio.run(_install(where, replicas))
    names = [stream.name for stream in status.streams]
    if output is Format.JSON:
        print_json(names)
    else:
        print_line(f"in place: {', '.join(names)}")


@app.command("rebuild")
@on_cluster(namespaced=False)
def bus_rebuild(
    where: Where,
    service: Annotated[
        list[str] | None, typer.Option(help=f"Only this service (repeatable), one of {', '.join(SERVICES)}.")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Republish facts that the streams have lost, from the status of the objects.

    Every replica of a controller republishes its share. The command is safe at any time: facts that a stream
    still has are not published again. Exit code 1 when a controller does not answer.
    """
    for one in service or ():
        if one not in SERVICES:
            problem = f"{one!r} has no facts to rebuild; choose one of {', '.join(SERVICES)}"
            raise typer.BadParameter(problem, param_hint="--service")
    answers = asyncio.run(_rebuild(where, service or SERVICES))
    if output is Format.JSON:
        print_json([_answer_as_json(answer) for answer in answers])
    else:
        _print_answers(answers)
    if any(answer.problem for answer in answers):
        raise typer.Exit(1)


@app.command("replay")
@on_cluster()
def bus_replay(
    where: Where,
    job: Annotated[str, typer.Option(help="The PaddleJob, existing or deleted: name, or namespace/name.")],
    output: Output = Format.TEXT,
) -> None:
    """Show all stored facts about a job, oldest first, also when the job is deleted.

    Jobs that had the same name one after the other are shown separately. The stream keeps facts for seven
    days. For messages that a consumer could not handle, use `paddlewheel dlq replay`.
    """
    try:
        asked = query(Wish(job=where.named(job)), since="all", follow=False)
    except InvalidArgument as error:
        raise as_option(error) from None
    found = asyncio.run(_replay(where, asked))
    for uid, story in found.items():
        _print_story(uid, story, output)
    if not found:
        message = f"no facts are stored about {job}: `kubectl get paddlejobs -A` lists the names"
        typer.echo(message, err=True)
        raise typer.Exit(1)


async def _look(where: Where) -> Look:
    async with open_access(where, OPERATOR) as access:
        access = replace(access, monitor_url=os.environ.get("NATS_MONITOR_URL", ""))
        seen = await _seen(access)
        copies = max((stream.replicas for stream in seen.status.streams), default=access.replicas)
        # The wanted number of replicas is a setting of the controllers: assume the largest number seen.
        return seen if copies == access.replicas else await _seen(replace(access, replicas=copies))


async def _install(where: Where, replicas: int) -> BusStatus:
    async with (
        open_access(where, OPERATOR) as access,
        connected(replace(access, streams="make", replicas=replicas)) as bus,
    ):
        await bus.check()
        return await bus.inspect.status()


async def _seen(access: Access) -> Look:
    async with connected(access) as bus:
        status = await bus.inspect.status()
        if DEAD_LETTERS.name in status.missing:
            return Look(status, {})
        async with aclosing(bus.dead_letters.list()) as letters:
            return Look(status, Counter([letter.durable async for letter in letters]))


async def _rebuild(where: Where, services: Sequence[str]) -> list[Answer]:
    async with operated(where) as bus:
        return await asyncio.gather(*(_rebuilt(bus, service) for service in services))


async def _rebuilt(bus: Bus, service: str) -> Answer:
    try:
        reports = await bus.ask_all(command_subject(service, "rebuild"), to_json(Rebuild()))
        replicas = tuple(from_json(RebuildReport, report) for report in reports)
    except PaddlewheelError as error:
        return Answer(service, problem=f"{error}; run it again")
    if not replicas:
        return Answer(service, problem="no replica answered: start it, or exclude it with --service")
    return Answer(service, replicas)


async def _replay(where: Where, asked: Query) -> dict[str, list[Event]]:
    """Facts about each object that had the name, sorted by the time at which they became true."""
    found: dict[str, list[Event]] = {}
    async with (
        open_access(where, SUBSCRIBER) as access,
        connected(access) as bus,
        aclosing(read(bus, asked)) as events,
    ):
        async for event in events:
            found.setdefault(event.object.uid, []).append(event)
    stories = [sorted(story, key=_time) for story in found.values()]
    return {story[0].object.uid: story for story in sorted(stories, key=lambda story: _time(story[0]))}


def _time(event: Event) -> datetime:
    return event.time


def _print_story(uid: str, story: Sequence[Event], output: Format) -> None:
    if output is Format.TEXT:
        print_line(f"{story[0].object.namespace}/{story[0].object.name}, uid {uid}")
    for event in story:
        text = f"  {event.time:%Y-%m-%d %H:%M:%S} {describe_fact(event)}"
        print_line(json_line(event) if output is Format.JSON else text)


def _print_look(seen: Look) -> None:
    tables = [_streams_table(seen.status), _durables_table(seen.status.durables, seen.dead_letters)]
    if seen.status.mirrors:
        tables.append(_mirrors_table(seen.status.mirrors))
    print_page(tables)
    for warning in seen.status.warnings:
        print_styled((f"warning: {warning}", "yellow"))
    for fault in seen.faults:
        print_styled((f"fault: {fault}", "red"))
    if not seen.faults:
        print_styled(("no faults", "green"))


def _streams_table(status: BusStatus) -> Table:
    numbers = ("messages", "size", "full", "replicas")
    table = Table(
        ("stream", *numbers, "note"), wraps={"note"}, drops=("replicas", "size"), right=set(numbers)
    )
    for s in status.streams:
        drift = "; ".join(f"{field} is {have}, declared {want}" for field, (want, have) in s.drift.items())
        table.add_row(*_figures(s), drift)
    for s in status.others:
        table.add_row(*_figures(s), "declared by others")
    return table


def _figures(s: StreamStatus) -> tuple[str, ...]:
    full = f"{_percent(s):.1f} %" if s.max_bytes else ""
    return s.name, f"{s.messages:,}", amount(s.bytes), full, str(s.replicas)


def _durables_table(durables: Sequence[DurableStatus], dead_letters: Mapping[str, int]) -> Table:
    numbers = ("waiting", "unacknowledged", "redelivered", "dead letters")
    table = Table(("consumer", "stream", *numbers), drops=("redelivered", "stream"), right=set(numbers))
    for d in durables:
        figures = (d.pending, d.ack_pending, d.redelivered, dead_letters.get(d.name, 0))
        table.add_row(d.name, d.stream, *(f"{figure:,}" for figure in figures))
    return table


def _mirrors_table(mirrors: Sequence[MirrorStatus]) -> Table:
    table = Table(("team", "copies", "facts to come"), right={"copies", "facts to come"})
    for team in dict.fromkeys(mirror.team for mirror in mirrors):
        lags = [mirror.lag for mirror in mirrors if mirror.team == team]
        table.add_row(team, f"{len(lags)}", f"{sum(lags):,}")
    return table


def _percent(stream: StreamStatus) -> float:
    return 100.0 * stream.bytes / stream.max_bytes if stream.max_bytes else 0.0


def _print_answers(answers: Sequence[Answer]) -> None:
    numbers = ("objects", "facts checked", "republished")
    table = Table(("service", "replica", *numbers), right=set(numbers))
    for answer in answers:
        for r in answer.replicas:
            figures = (r.objects, r.facts_checked, r.facts_published)
            table.add_row(answer.service, r.replica, *(f"{figure:,}" for figure in figures))
    if table.rows:
        print_table(table)
    for answer in answers:
        if answer.problem:
            typer.echo(f"{answer.service}: {answer.problem}", err=True)


def _answer_as_json(answer: Answer) -> dict[str, object]:
    replicas = [report.model_dump() for report in answer.replicas]
    return {"service": answer.service, "replicas": replicas, "problem": answer.problem}
