"""`paddlewheel service`: services, their revisions, and the rollout of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from paddlewheel.cli import service_tables as tables
from paddlewheel.cli.listing import print_objects
from paddlewheel.cli.object_watch import STATUS_INTERVAL_SECONDS
from paddlewheel.cli.output import (
    Format,
    Output,
    print_foreign,
    print_json,
    print_line,
)
from paddlewheel.cli.predictions import (
    Gateway,
    RequestPath,
    as_json,
    ask_gateway,
    ask_stable,
    check_has_pods,
    model_path,
    request_body,
    status_line,
)
from paddlewheel.cli.progress import Report, progress_reporter
from paddlewheel.cli.service_changes import (
    Change,
    Json,
    Seen,
    abortion,
    earlier,
    is_reached,
    progress,
    promotion,
    read,
    release,
    restoration,
    share_of,
)
from paddlewheel.cli.service_measure import (
    measured_revision,
    measurement,
    parse_metrics,
    print_measurement,
    publish,
)
from paddlewheel.cli.table import print_page, print_table
from paddlewheel.cli.target import Target, Where, find, on_cluster
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import generation_of, key_of
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.kube.ports import CONTROLLER_REVISIONS, PADDLE_SERVICES, Cluster, Object

app = typer.Typer(
    add_completion=False,
    help="""Models and programs that answer requests (PaddleService), and their updates.

[bold]Examples[/bold]

[cyan]paddlewheel service list -A[/cyan]  every service, its address and why it is not ready

[cyan]paddlewheel service show digits[/cyan]  revisions, their traffic, figures of the last canary

[cyan]paddlewheel service rollback digits --wait 300[/cyan]  return to the previous revision

[cyan]paddlewheel service measure digits accuracy=0.97[/cyan]  publish a metric of the revision on trial

[cyan]paddlewheel service predict digits --data @digit.json[/cyan]  send a request
""",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The PaddleService: name, or namespace/name.", metavar="SERVICE")]
Wait = Annotated[
    int,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        help="Wait this long for the change to take effect; 0: do not wait.",
    ),
]
_TRIES = 5
"""Attempts to write a change: the controller may write the status in between."""
_RECORDS = "PaddleService={}"
"""Label selector of the records of a service's revisions."""


@app.command("list")
@on_cluster(lists=True)
def list_(
    where: Where,
    output: Output = Format.TEXT,
) -> None:
    """List services with address, traffic and the reason why they are not ready."""
    print_objects(where, PADDLE_SERVICES, output, lambda found: tables.services([*map(read, found)]))


@app.command("show")
@on_cluster()
def show(
    where: Where,
    service: Name,
    output: Output = Format.TEXT,
) -> None:
    """Show addresses, conditions, revisions, and the current or last rollout."""
    obj, contents = asyncio.run(_read(where.target, where.key(service)))
    if output is Format.JSON:
        print_json(obj)
        return
    print_page(tables.service(read(obj), contents))


@app.command("history")
@on_cluster()
def history(
    where: Where,
    service: Name,
    output: Output = Format.TEXT,
) -> None:
    """List the revisions that are kept, newest first; `rollback --to` takes their number or name.

    Each revision is shown with its image or model, and its differences from the previous revision.
    """
    obj, contents = asyncio.run(_read(where.target, where.key(service)))
    status = read(obj).status
    if output is Format.JSON:
        changes = tables.changes(status, contents)
        print_json(
            [
                {**revision.model_dump(mode="json", by_alias=True), "changes": changes.get(revision.name, [])}
                for revision in status.revisions
            ]
        )
        return
    print_table(tables.revisions(status, contents))


@app.command("rollback")
@on_cluster()
def rollback(
    where: Where,
    service: Name,
    to: Annotated[
        str, typer.Option("--to", help="Number or name of a revision; default: the previous one.")
    ] = "",
    now: Annotated[
        bool,
        typer.Option("--now", help="Skip the steps of spec.rollout, and hold the service to the revision."),
    ] = False,
    wait: Wait = 0,
    output: Output = Format.TEXT,
) -> None:
    """Serve an earlier revision again: write its image or model into spec.default, and remove a canary.

    The previous revision is the stable one while a change is rolled out or was rolled back. Otherwise it is
    the revision that was stable before.

    With spec.rollout, an older revision goes through the steps. With --now it gets all requests as soon as it
    is ready, and later changes of the spec have no effect until `paddlewheel service release`.
    """
    _change(_Request(where.target, where.key(service), output, wait), back_to(to, now=now))


@app.command("promote")
@on_cluster()
def promote(
    where: Where,
    service: Name,
    wait: Wait = 0,
    output: Output = Format.TEXT,
) -> None:
    """Give all requests to the canary now.

    A canary of spec.canary becomes spec.default. An automatic rollout skips its remaining steps.
    """
    _change(_Request(where.target, where.key(service), output, wait), decided_by(promotion))


@app.command("abort")
@on_cluster()
def abort(
    where: Where,
    service: Name,
    wait: Wait = 0,
    output: Output = Format.TEXT,
) -> None:
    """Send no requests to the canary; the stable revision answers all of them."""
    _change(_Request(where.target, where.key(service), output, wait), decided_by(abortion))


@app.command("release")
@on_cluster()
def release_(
    where: Where,
    service: Name,
    output: Output = Format.TEXT,
) -> None:
    """Make a service follow its spec again, after `rollback --now`."""
    _change(_Request(where.target, where.key(service), output), decided_by(release))


@app.command("measure")
@on_cluster()
def measure(
    where: Where,
    service: Name,
    metrics: Annotated[list[str], typer.Argument(help="The measured values.", metavar="METRIC=VALUE...")],
    revision: Annotated[
        str, typer.Option("--revision", help="Number or name of a revision; default: the one on trial.")
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Publish measured values of a revision, for the metrics in spec.rollout.limits.metrics.

    The fact (RevisionMeasured) replaces earlier values of the same metrics. NaN violates all limits.

    [bold]Examples[/bold]

    [cyan]paddlewheel service measure digits accuracy=0.97 latency_ms=12[/cyan]  the revision on trial

    [cyan]paddlewheel service measure digits --revision digits-5f6a7b8c9d accuracy=0.97[/cyan]
    """
    key, values = where.key(service), parse_metrics(metrics)
    seen = read(asyncio.run(_found(where.target, key)))
    event = measurement(seen, measured_revision(seen, revision), values)
    asyncio.run(publish(where, event))
    print_measurement(seen, event, output)


@app.command("predict")
@on_cluster()
def predict(
    where: Where,
    service: Name,
    data: Annotated[str, typer.Option("--data", "-d", help="JSON, or @FILE; - reads standard input.")],
    path: RequestPath = "",
    gateway: Gateway = "",
    output: Output = Format.TEXT,
) -> None:
    """Send one request to a service and print its answer; exit code 1 when it is refused.

    [bold]Examples[/bold]

    [cyan]paddlewheel service predict digits --data @digit.json[/cyan]  asks the stable revision

    [cyan]paddlewheel service predict lac --path /lac/prediction --data '{"feed": [], "fetch": []}'[/cyan]
    """
    key, body = where.key(service), request_body(data)
    status, answer = asyncio.run(_predict(where.target, key, path, gateway, body))
    if output is Format.JSON:
        print_json({"status": status, "answer": as_json(answer)})
    elif answer:
        print_foreign(answer)
    if status >= 300:
        typer.echo(f"error: the service answered {status_line(status)}", err=True)
        raise typer.Exit(1)


# Reading


async def _read(where: Target, key: Key) -> tuple[Object, dict[str, Json]]:
    """The service, and the content of its revisions by name."""
    async with where.connected() as api:
        return await get(api, key), await _contents(api, key)


async def _found(where: Target, key: Key) -> Object:
    async with where.connected() as api:
        return await get(api, key)


async def get(api: Cluster, key: Key) -> Object:
    """Get a service. Raises Permanent, which names the services of the namespace."""
    return await find(api, PADDLE_SERVICES, key)


async def _contents(api: Cluster, key: Key) -> dict[str, Json]:
    """Content by revision; {} for users who may not read the records."""
    try:
        records = await api.list(
            CONTROLLER_REVISIONS, key.namespace, label_selector=_RECORDS.format(key.name)
        )
    except Permanent as error:
        if error.reason != "Forbidden":
            raise
        return {}
    return {record["metadata"]["name"]: record["data"]["content"] for record in records}


# Changing


@dataclass(frozen=True)
class _Request:
    """The service to change, the format of the output, and the seconds to wait for the change."""

    where: Target
    key: Key
    output: Format
    wait: int = 0


Decide = Callable[[Cluster, Seen], Awaitable[Change]]


def back_to(to: str, *, now: bool) -> Decide:
    """Return to the revision with this number or name, or to the previous one."""

    async def decided(api: Cluster, seen: Seen) -> Change:
        wanted = earlier(seen, to)
        record = await api.get(CONTROLLER_REVISIONS, Key(key_of(seen.obj).namespace, wanted.name))
        return restoration(seen, wanted, record["data"]["content"], now=now)

    return decided


def decided_by(decide: Callable[[Seen], Change]) -> Decide:
    """Decide from the service alone."""

    async def decided(_: Cluster, seen: Seen) -> Change:
        return decide(seen)

    return decided


def _change(request: _Request, decide: Decide) -> None:
    change, is_done = asyncio.run(_changed(request, decide))
    if request.output is Format.JSON:
        print_json({"service": str(request.key), "action": change.summary, "done": is_done})
        return
    print_line(f"{request.key}: {change.summary}")
    shows = f"`paddlewheel service show {request.key}` shows the effect"
    print_line(f"{change.goal} gets all requests" if is_done else shows)


async def _changed(request: _Request, decide: Decide) -> tuple[Change, bool]:
    async with request.where.connected() as api:
        change, obj = await apply_change(api, request.key, decide)
        if not (request.wait and change.goal):
            return change, False
        with progress_reporter(str(request.key), quiet=request.output is Format.JSON) as report:
            await wait_until_reached(api, change, obj, request.wait, report)
        return change, True


async def apply_change(api: Cluster, key: Key, decide: Decide) -> tuple[Change, Object]:
    """Decide about a change and write it. The patch applies only to the version that was read.

    Raises:
        Permanent: there is nothing to change, or other clients change the service all the time.
    """
    for _ in range(_TRIES):
        obj = await get(api, key)
        change = await decide(api, read(obj))
        metadata = {**change.patch.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
        with suppress(Conflict):
            return change, await api.patch(PADDLE_SERVICES, key, {**change.patch, "metadata": metadata})
    raise Permanent("Conflict", f"{key} was changed by other clients {_TRIES} times: run the command again")


async def wait_until_reached(
    api: Cluster, change: Change, obj: Object, seconds: float, report: Report
) -> None:
    """Read the status until the change has taken effect.

    Args:
        obj: the object after the change.

    Raises:
        Permanent: the change did not take effect in time, or was rolled back.
    """
    seen = read(obj)
    try:
        async with asyncio.timeout(seconds):
            while not is_reached(change, seen, generation_of(obj)):
                report(progress(change, seen), share_of(change, seen) / 100)
                await asyncio.sleep(STATUS_INTERVAL_SECONDS)
                with suppress(Retry):
                    seen = read(await get(api, key_of(obj)))
    except TimeoutError:
        raise Permanent(
            "NotYet", f"after {seconds:g} s: {progress(change, seen)}; the change continues"
        ) from None


# Predictions


async def _predict(where: Target, key: Key, path: str, gateway: str, body: bytes) -> tuple[int, str]:
    async with where.connected() as api:
        obj = await get(api, key)
    path, status = path or model_path(obj), read(obj).status
    if gateway:
        return await ask_gateway(gateway, status, path, body)
    check_has_pods(status)
    return await ask_stable(where.tools, key, path, body)
