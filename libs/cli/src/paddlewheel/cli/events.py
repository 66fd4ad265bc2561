"""`paddlewheel events`: the facts on the bus, as they are published."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated

import orjson
import typer
from rich.console import Console

from paddlewheel.bus.admin.permissions import SUBSCRIBER
from paddlewheel.cli.on_bus import OPEN_WITHIN, open_access
from paddlewheel.cli.output import ClusterName, Format, Output, into_pipe, print_line, while_read
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.wire import to_json
from paddlewheel.sdk.errors import InvalidArgument
from paddlewheel.sdk.model import about
from paddlewheel.sdk.selection import Wish
from paddlewheel.sdk.subscription import Query, query, subscribe

_OPTIONS = {"types": "--type", "sample_set": "--set", "sample_job": "--sample-job"}
"""Options whose names differ from the SDK's parameters."""
_NAMES_OBJECT = {"job", "sampleSet", "sampleJob", "trigger", "setNamespace", "setName", "setUid"}

HELP = """Follow the facts that the services publish, oldest first; Ctrl-C ends it.

[bold]Which bus:[/bold] NATS_URL (with NATS_TLS_DIR and NATS_CREDS) if set, else that of the cluster in
KUBECONFIG, else that of the embedded cluster [cyan]--name[/cyan].

[bold]Examples[/bold]

[cyan]paddlewheel events --since 10m[/cyan]  facts of all services, then new ones

[cyan]paddlewheel events --job team-a/resnet --since all --no-follow[/cyan]  a job's history, even if deleted

[cyan]paddlewheel events --set team-a/imagenet[/cyan]  a data set and its cache

[cyan]paddlewheel events --type JobFailed --type JobSucceeded -o json[/cyan]  one CloudEvent per line

[cyan]paddlewheel events --durable my-script -o json[/cyan]  continue later where this ended
"""

app = typer.Typer(add_completion=False)


@app.command(help=HELP)
def events(
    name: ClusterName = "demo",
    job: Annotated[str, typer.Option(help="Only this PaddleJob: namespace/name, or namespace/*.")] = "",
    set_: Annotated[str, typer.Option("--set", help="Only this SampleSet and its cache.")] = "",
    sample_job: Annotated[str, typer.Option(help="Only this SampleJob. Several objects may be named.")] = "",
    service: Annotated[
        str, typer.Option(help="Only facts of this service: job-controller, dataset-controller ...")
    ] = "",
    types: Annotated[
        list[str] | None, typer.Option("--type", help="Only these facts: JobFailed, SampleSetReady ...")
    ] = None,
    context: Annotated[str, typer.Option(help="jobs, datasets, cache, triggers, or * for all.")] = "*",
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
    """Print facts until Ctrl-C, or until all stored ones are printed; `HELP` is what users see."""
    wish = Wish(job, set_, sample_job, service, "" if context == "*" else context, tuple(types or ()))
    try:
        asked = query(wish, since=since, durable=durable, follow=follow, open_within=OPEN_WITHIN)
    except InvalidArgument as error:
        raise as_option(error) from None
    with into_pipe():
        asyncio.run(while_read(_print_all(name, asked, output)))


def as_option(error: InvalidArgument) -> typer.BadParameter:
    """The SDK's error about a parameter, as one about the option."""
    option = _OPTIONS.get(error.parameter, f"--{error.parameter}")
    return typer.BadParameter(f"{error.problem}; {error.remedy}", param_hint=option)


def describe(event: Event) -> str:
    """One line: time, fact, object, and the other fields of the fact."""
    return f"{event.time:%H:%M:%S} {describe_fact(event)}"


def describe_fact(event: Event) -> str:
    """The same without the time."""
    data = orjson.loads(to_json(event.data))
    fact = ".".join(event.subject.split(".")[2:5])
    said = " ".join(f"{name}={_short(value)}" for name, value in data.items() if name not in _NAMES_OBJECT)
    subject = about(event.data, event.subject)
    return f"{fact:<28} {subject.namespace}/{subject.name} {said}".rstrip()


def as_json(event: Event) -> dict[str, object]:
    """The event in CloudEvents' JSON form (structured mode)."""
    return {
        "specversion": "1.0", "id": event.id, "type": event.type, "source": event.source,
        "subject": event.subject, "time": event.time.isoformat(),
        "data": orjson.loads(to_json(event.data)),
    }  # fmt: skip


def _short(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


async def _print_all(name: str, asked: Query, output: Format) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    async with open_access(name, SUBSCRIBER) as access, aclosing(subscribe(access, asked)) as found:
        async for event in found:
            if output == Format.JSON:
                print_line(orjson.dumps(as_json(event)).decode())
            else:
                console.print(describe(event))
