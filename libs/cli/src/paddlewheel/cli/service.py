"""`paddlewheel service`: what serves, its revisions, and how a change reaches the users."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from paddlewheel.cli import service_tables as tables
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
from paddlewheel.cli.table import print_part, print_table
from paddlewheel.cli.target import Target, Where, find, on_cluster
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import generation_of, key_of, status_of
from paddlewheel.core.errors import Conflict, Permanent, Retry
from paddlewheel.kube.ports import CONTROLLER_REVISIONS, PADDLE_SERVICES, Cluster, Object

app = typer.Typer(
    add_completion=False,
    help="""Models and programs that answer requests (PaddleService), and their updates.

[bold]Examples[/bold]

[cyan]paddlewheel service list -A[/cyan]  every service, its address and why it is not ready

[cyan]paddlewheel service show digits[/cyan]  revisions, shares of the requests, figures of the last canary

[cyan]paddlewheel service rollback digits --wait 300[/cyan]  back to the revision before

[cyan]paddlewheel service measure digits accuracy=0.97[/cyan]  what the revision on trial has achieved

[cyan]paddlewheel service predict digits --data @digit.json[/cyan]  ask it
""",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The PaddleService: name, or namespace/name.", metavar="SERVICE")]
Wait = Annotated[
    int,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, help="Wait until it is so, for at most so long; 0: do not."
    ),
]
_TRIES = 5
"""Of a change: the controller writes the status between our reading and our writing."""
_POLL = 1.0
"""Seconds between two looks at the status."""
_RECORDS = "PaddleService={}"
"""Label selector of the records of a service's revisions."""


@app.command("list")
@on_cluster(lists=True)
def list_(
    where: Where,
    output: Output = Format.TEXT,
) -> None:
    """List services with address, shares of the requests and what keeps them from being ready."""
    found = asyncio.run(where.objects(PADDLE_SERVICES))
    if output is Format.JSON:
        print_json([_with_status(obj) for obj in found])
    elif found:
        print_table(tables.services([read(obj) for obj in found]))
    else:
        where.report_none(PADDLE_SERVICES)


@app.command("show")
@on_cluster()
def show(
    where: Where,
    service: Name,
    output: Output = Format.TEXT,
) -> None:
    """Show addresses, conditions, revisions and the change that is under way or was the last one."""
    obj, contents = asyncio.run(_read(where.target, where.key(service)))
    if output is Format.JSON:
        print_json(_with_status(obj))
        return
    for part in tables.service(read(obj), contents):
        print_part(part)


@app.command("history")
@on_cluster()
def history(
    where: Where,
    service: Name,
    output: Output = Format.TEXT,
) -> None:
    """List the revisions that are kept, newest first; `rollback --to` takes their number or name.

    Beside image or model, each says what else differs from the one before: port, arg, resources and so on.
    """
    obj, contents = asyncio.run(_read(where.target, where.key(service)))
    status = read(obj).status
    if output is Format.JSON:
        print_json([revision.model_dump(mode="json", by_alias=True) for revision in status.revisions])
        return
    print_table(tables.revisions(status, contents))


@app.command("rollback")
@on_cluster()
def rollback(
    where: Where,
    service: Name,
    to: Annotated[str, typer.Option("--to", help="Number or name; default: the revision before.")] = "",
    now: Annotated[
        bool, typer.Option("--now", help="Without the steps of spec.rollout; `release` ends it.")
    ] = False,
    wait: Wait = 0,
    output: Output = Format.TEXT,
) -> None:
    """Serve an earlier revision again: writes its image or model into spec.default and removes a canary.

    The revision before is the stable one while a change is under way or was rolled back, and otherwise the
    one that was stable before it.

    With spec.rollout, an older revision goes through its steps, compared with the stable one. --now gives it
    all requests as soon as it is ready, and holds the service to it: later changes of the spec have no effect
    until `paddlewheel service release`.
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

    A canary of spec.canary becomes spec.default; one that is judged automatically skips its other steps.
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
    """Take all requests from the canary; the stable revision answers them."""
    _change(_Request(where.target, where.key(service), output, wait), decided_by(abortion))


@app.command("release")
@on_cluster()
def release_(
    where: Where,
    service: Name,
    output: Output = Format.TEXT,
) -> None:
    """Let a service follow its spec again, after `rollback --now` held it to one revision."""
    _change(_Request(where.target, where.key(service), output), decided_by(release))


@app.command("measure")
@on_cluster()
def measure(
    where: Where,
    service: Name,
    metrics: Annotated[list[str], typer.Argument(help="What was measured.", metavar="METRIC=VALUE...")],
    revision: Annotated[
        str, typer.Option("--revision", help="Number or name; default: the one on trial.")
    ] = "",
    output: Output = Format.TEXT,
) -> None:
    """Publish what was measured of a revision, for the metrics in spec.rollout.limits.metrics.

    The fact (RevisionMeasured) replaces earlier values of the same metrics. NaN is outside all limits.

    [bold]Examples[/bold]

    [cyan]paddlewheel service measure digits accuracy=0.97 latency_ms=12[/cyan]  of the revision on trial

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


# What is read


async def _read(where: Target, key: Key) -> tuple[Object, dict[str, Json]]:
    """The service, and what its revisions are made of."""
    async with where.connected() as api:
        return await get(api, key), await _contents(api, key)


async def _found(where: Target, key: Key) -> Object:
    async with where.connected() as api:
        return await get(api, key)


async def get(api: Cluster, key: Key) -> Object:
    """Raises Permanent, which names the services that there are in the namespace."""
    return await find(api, PADDLE_SERVICES, key)


async def _contents(api: Cluster, key: Key) -> dict[str, Json]:
    """By revision; none for those who may not read the records."""
    try:
        records = await api.list(
            CONTROLLER_REVISIONS, key.namespace, label_selector=_RECORDS.format(key.name)
        )
    except Permanent as error:
        if error.reason != "Forbidden":
            raise
        return {}
    return {record["metadata"]["name"]: record["data"]["content"] for record in records}


def _with_status(obj: Object) -> Json:
    return {"name": key_of(obj).name, "namespace": key_of(obj).namespace, **status_of(obj)}


# What is changed


@dataclass(frozen=True)
class _Request:
    """Which object to change, how to say so, and for how many seconds to wait until it is so."""

    where: Target
    key: Key
    output: Format
    wait: int = 0


Decide = Callable[[Cluster, Seen], Awaitable[Change]]


def back_to(to: str, *, now: bool) -> Decide:
    """To a revision of this number or name, or to the one before."""

    async def decided(api: Cluster, seen: Seen) -> Change:
        wanted = earlier(seen, to)
        record = await api.get(CONTROLLER_REVISIONS, Key(key_of(seen.obj).namespace, wanted.name))
        return restoration(seen, wanted, record["data"]["content"], now=now)

    return decided


def decided_by(decide: Callable[[Seen], Change]) -> Decide:
    """Without anything else to read."""

    async def decided(_: Cluster, seen: Seen) -> Change:
        return decide(seen)

    return decided


def _change(request: _Request, decide: Decide) -> None:
    change, is_done = asyncio.run(_changed(request, decide))
    if request.output is Format.JSON:
        print_json({"service": str(request.key), "asked": change.said, "done": is_done})
        return
    print_line(f"{request.key}: {change.said}")
    shows = f"`paddlewheel service show {request.key}` shows its effect"
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
    """Each patch holds for the version that was decided about: nobody's change is overwritten.

    Raises:
        Permanent: there is nothing to change, or others change it all the time.
    """
    for _ in range(_TRIES):
        obj = await get(api, key)
        change = await decide(api, read(obj))
        metadata = {**change.patch.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
        with suppress(Conflict):
            return change, await api.patch(PADDLE_SERVICES, key, {**change.patch, "metadata": metadata})
    raise Permanent(
        "Conflict", f"{key} was changed by others {_TRIES} times meanwhile: run the command again"
    )


async def wait_until_reached(
    api: Cluster, change: Change, obj: Object, seconds: float, report: Report
) -> None:
    """Look at the status until it is so.

    Args:
        obj: the object that the change gave.

    Raises:
        Permanent: it was not so in time, or was decided otherwise.
    """
    seen = read(obj)
    try:
        async with asyncio.timeout(seconds):
            while not is_reached(change, seen, generation_of(obj)):
                report(progress(change, seen), share_of(change, seen) / 100)
                await asyncio.sleep(_POLL)
                with suppress(Retry):
                    seen = read(await get(api, key_of(obj)))
    except TimeoutError:
        raise Permanent("NotYet", f"after {seconds:g} s: {progress(change, seen)}; it goes on") from None


# Predictions


async def _predict(where: Target, key: Key, path: str, gateway: str, body: bytes) -> tuple[int, str]:
    async with where.connected() as api:
        obj = await get(api, key)
    path, status = path or model_path(obj), read(obj).status
    if gateway:
        return await ask_gateway(gateway, status, path, body)
    check_has_pods(status)
    return await ask_stable(where.tools, key, path, body)
