"""`paddlewheel events`: follow the facts on the bus."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Annotated

import orjson
import typer

from paddlewheel.bus.admin.permissions import SUBSCRIBER
from paddlewheel.cli.on_bus import connected, open_access
from paddlewheel.cli.output import Format, Output, print_line, visible, while_read
from paddlewheel.cli.target import Where, on_cluster
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.wire import to_json
from paddlewheel.sdk.errors import InvalidArgument
from paddlewheel.sdk.model import about
from paddlewheel.sdk.selection import Wish
from paddlewheel.sdk.subscription import Query, query, read

_OPTIONS = {"types": "--type", "sample_set": "--set", "context": "--area"}
"""Options whose names differ from the SDK's parameters."""
_PARAMETER = re.compile(
    r"\b(job|sample_set|sample_job|paddle_service|service|context|types|namespace)=([^\s,]+(?:,[^\s,]+)*)"
)
"""A selection in an error message of the SDK."""
_NAMES_OBJECT = {"job", "sampleSet", "sampleJob", "trigger", "service", "setNamespace", "setName", "setUid"}

HELP = """Follow the facts that the services publish; Ctrl-C ends it.

[bold]Order:[/bold] stored facts by the time at which they became true (--since means that time too); then new
facts as they arrive. With --durable, all facts come in the order of the streams.

[bold]Which bus:[/bold] the one of the cluster that --context, --kubeconfig or --cluster names, else the
server of NATS_URL (with NATS_TLS_DIR and NATS_CREDS), else the one of the current context.

[bold]Which namespaces:[/bold] the one of -n, else the one of the context; all with -A. With NATS_URL, all by
default.

[bold]Examples[/bold]

[cyan]paddlewheel events -A --since 10m[/cyan]  facts of all namespaces, then new ones

[cyan]paddlewheel events --job team-a/resnet --since all --no-follow[/cyan]  a job's history, even if deleted

[cyan]paddlewheel events --set team-a/imagenet[/cyan]  a data set and its cache

[cyan]paddlewheel events --paddle-service team-a/digits[/cyan]  a service, its revisions and canaries

[cyan]paddlewheel events -A --type JobFailed --type JobSucceeded -o json[/cyan]  one CloudEvent per line

[cyan]paddlewheel events -A --durable my-script -o json[/cyan]  continue later where this ended
"""

app = typer.Typer(add_completion=False)


@app.command(help=HELP)
@on_cluster(lists=True)
def events(
    where: Where,
    job: Annotated[str, typer.Option(help="Only this PaddleJob: name, namespace/name, or namespace/*.")] = "",
    set_: Annotated[str, typer.Option("--set", help="Only this SampleSet and its cache.")] = "",
    sample_job: Annotated[str, typer.Option(help="Only this SampleJob. Several objects may be named.")] = "",
    paddle_service: Annotated[str, typer.Option(help="Only this PaddleService and its revisions.")] = "",
    service: Annotated[
        str, typer.Option(help="Only facts of this service: job-controller, dataset-controller ...")
    ] = "",
    types: Annotated[
        list[str] | None, typer.Option("--type", help="Only these facts: JobFailed, SampleSetReady ...")
    ] = None,
    area: Annotated[
        str,
        typer.Option(
            help="jobs, progress, datasets, cache, cacheprogress, models, serving, measurements, triggers, "
            "or * for all."
        ),
    ] = "*",
    since: Annotated[
        str,
        typer.Option(help='Start at: 30s, 10m, 2h, 1d ago, a time, "all"; "" = only new facts.'),
    ] = "1h",
    follow: Annotated[bool, typer.Option(help="Wait for new facts, or end after the stored ones.")] = True,
    durable: Annotated[
        str,
        typer.Option(help="Continue where this name ended; --since applies the first time only."),
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Print facts until Ctrl-C, or until all stored facts are printed. Users see `HELP`."""
    contexts = "" if area == "*" else area
    job, set_, sample_job, paddle_service = map(where.named, (job, set_, sample_job, paddle_service))
    wish = Wish(job, set_, sample_job, paddle_service, service, contexts, tuple(types or ()))
    checked = partial(query, since=since, durable=durable, follow=follow)
    try:
        asked = checked(wish)
        if not (job or set_ or sample_job or paddle_service):
            # Invalid options are refused before a cluster is chosen.
            asked = checked(replace(wish, namespace=where.listed_on_bus))
        asyncio.run(while_read(_print_all(where, asked, since, output)))
    except InvalidArgument as error:
        raise as_option(error) from None


def as_option(error: InvalidArgument) -> Exception:
    """Make an error about an option of an SDK error about a parameter; keep an error about a variable."""
    if error.parameter.isupper():
        return error
    problem = _PARAMETER.sub(lambda found: _as_options(*found.groups()), error.problem)
    return typer.BadParameter(f"{problem}; {error.remedy}", param_hint=_option(error.parameter))


def _as_options(parameter: str, values: str) -> str:
    return " ".join(f"{_option(parameter)} {value}" for value in values.split(","))


def _option(parameter: str) -> str:
    return _OPTIONS.get(parameter, f"--{parameter.replace('_', '-')}")


def describe(event: Event) -> str:
    """One line: time, fact, object, and the other fields of the fact."""
    return f"{event.time:%H:%M:%S} {describe_fact(event)}"


def describe_fact(event: Event) -> str:
    """The same without the time."""
    data = orjson.loads(to_json(event.data))
    fact = ".".join(event.subject.split(".")[2:5])
    fields = " ".join(f"{name}={_short(value)}" for name, value in data.items() if name not in _NAMES_OBJECT)
    subject = about(event.data, event.subject)
    return f"{fact:<28} {subject.namespace}/{subject.name} {fields}".rstrip()


def as_json(event: Event) -> dict[str, object]:
    """The event in CloudEvents' JSON form (structured mode)."""
    return {
        "specversion": "1.0", "id": event.id, "type": event.type, "source": event.source,
        "subject": event.subject, "time": event.time.isoformat(),
        "data": orjson.loads(to_json(event.data)),
    }  # fmt: skip


def _short(value: object) -> str:
    return visible(value) if isinstance(value, str) else orjson.dumps(value).decode()


async def _print_all(where: Where, asked: Query, since: str, output: Format) -> None:
    printer = _Printer(asked, output, lambda: _report_none(where, asked, since))
    asked = replace(asked, reading=replace(asked.reading, caught_up=printer.caught_up))
    keeps_trying = asked.reading.follow
    async with (
        open_access(where, SUBSCRIBER) as access,
        connected(access, keeps_trying=keeps_trying) as bus,
        aclosing(read(bus, asked)) as found,
    ):
        async for event in found:
            printer.take(event)
    printer.report_if_none()


def _report_none(where: Where, asked: Query, since: str) -> None:
    """Print to standard error that no facts are stored, and what was searched."""
    selection = _PARAMETER.sub(lambda found: _as_options(*found.groups()), asked.reading.selection)
    start = "since the last run" if asked.reading.durable else f"since {since}" if since else "since now"
    bus = "Bus: NATS_URL" if where.uses_own_bus else f"Cluster: {where.target}"
    more = "; -A reads all namespaces" if "--namespace" in selection else ""
    waits = "; waiting for new facts" if asked.reading.follow else ""
    typer.echo(f"No facts found {start}: {selection}. {bus}{more}{waits}", err=True)


class _Printer:
    """Prints stored facts by the time at which they became true, and later facts as they arrive.

    A fact that was published late, or again after the loss of a stream, is stored behind younger ones. With a
    durable name, each fact is printed before the next one is requested, and then counts as handled.
    """

    def __init__(self, asked: Query, output: Format, report_none: Callable[[], None]) -> None:
        self._report_none: Callable[[], None] | None = report_none
        self._since = asked.reading.since
        self._render = json_line if output is Format.JSON else describe
        self._stored: list[tuple[datetime, str]] | None = None if asked.reading.durable else []

    def take(self, event: Event) -> None:
        if self._stored is None:
            self._report_none = None
            print_line(self._render(event))
        elif self._since is None or event.time >= self._since:
            self._stored.append((event.time, self._render(event)))

    def caught_up(self) -> None:
        """Print the stored facts: all of them have been received."""
        stored, self._stored = self._stored or (), None
        for _, line in sorted(stored, key=itemgetter(0)):
            self._report_none = None
            print_line(line)
        self.report_if_none()

    def report_if_none(self) -> None:
        """Report once that nothing was printed."""
        report, self._report_none = self._report_none, None
        if report:
            report()


def json_line(event: Event) -> str:
    """The event as one line for scripts."""
    return orjson.dumps(as_json(event)).decode()
