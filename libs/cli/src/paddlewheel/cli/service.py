"""`paddlewheel service`: what serves, its revisions, and how a change reaches the users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.table import Table

from paddlewheel.cli.output import Format, KubeClusterName, Output, console, print_json, print_line
from paddlewheel.cli.predictions import ask_gateway, ask_stable
from paddlewheel.cli.service_changes import Json, abortion, promotion, restoration
from paddlewheel.cli.target import target
from paddlewheel.contracts.crds import parse_paddle_service_status
from paddlewheel.contracts.crds.paddleservice import PaddleServiceStatus, RevisionStatus
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import key_of
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.kube import connect
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import CONTROLLER_REVISIONS, PADDLE_SERVICES, Object

app = typer.Typer(
    add_completion=False,
    help="""Models and programs that answer requests (PaddleService), and their updates.

[bold]Examples[/bold]

[cyan]paddlewheel service list -A[/cyan]  every service, its address and why it is not ready

[cyan]paddlewheel service show digits[/cyan]  revisions, shares of the requests, figures of the last canary

[cyan]paddlewheel service rollback digits[/cyan]  back to the revision before

[cyan]paddlewheel service predict digits --data @digit.json[/cyan]  ask it
""",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The PaddleService: name, or namespace/name.", metavar="SERVICE")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")]


@app.command("list")
def list_(
    namespace: Namespace = "default",
    all_: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")] = False,
    name: KubeClusterName = "demo",
    output: Output = Format.TEXT,
) -> None:
    """List services with address, shares of the requests and what keeps them from being ready."""
    found = asyncio.run(_listed(name, "" if all_ else namespace))
    if output is Format.JSON:
        print_json([{**_about(obj), **(obj.get("status") or {})} for obj in found])
        return
    table = Table("service", "mode", "ready", "url", "traffic", "reason")
    for obj in found:
        status = parse_paddle_service_status(obj)
        reason = str((obj.get("status") or {}).get("reason", ""))
        ready = _ready(status)
        table.add_row(str(key_of(obj)), status.mode, ready, status.url, _shares(status), reason)
    console().print(table)


@app.command("show")
def show(
    service: Name,
    namespace: Namespace = "default",
    name: KubeClusterName = "demo",
    output: Output = Format.TEXT,
) -> None:
    """Show addresses, conditions, revisions and the change that is under way or was the last one."""
    obj = asyncio.run(_read(name, _key(service, namespace)))
    if output is Format.JSON:
        print_json({**_about(obj), **(obj.get("status") or {})})
        return
    for table in _tables(obj, parse_paddle_service_status(obj)):
        console().print(table)


@app.command("history")
def history(
    service: Name,
    namespace: Namespace = "default",
    name: KubeClusterName = "demo",
    output: Output = Format.TEXT,
) -> None:
    """List the revisions that are kept, newest first; `rollback --to` takes their number or name."""
    status = parse_paddle_service_status(asyncio.run(_read(name, _key(service, namespace))))
    if output is Format.JSON:
        print_json([revision.model_dump(mode="json", by_alias=True) for revision in status.revisions])
        return
    console().print(_revisions(status))


@app.command("rollback")
def rollback(
    service: Name,
    to: Annotated[str, typer.Option("--to", help="Number or name; default: the revision before.")] = "",
    namespace: Namespace = "default",
    name: KubeClusterName = "demo",
    output: Output = Format.TEXT,
) -> None:
    """Serve an earlier revision again: writes its image or model into spec.default and removes a canary."""

    async def change(api: ApiCluster, obj: Object) -> tuple[dict[str, Any], str]:
        wanted = earlier(parse_paddle_service_status(obj), to)
        record = await api.get(CONTROLLER_REVISIONS, Key(key_of(obj).namespace, wanted.name))
        return restoration(obj["spec"], record["data"]["content"]), f"{wanted.name} is served again"

    _change(_Request(name, _key(service, namespace), output), change)


@app.command("promote")
def promote(
    service: Name,
    namespace: Namespace = "default",
    name: KubeClusterName = "demo",
    output: Output = Format.TEXT,
) -> None:
    """Give all requests to the canary now.

    A canary of spec.canary becomes spec.default; one that is judged automatically skips its other steps.
    """

    async def change(_: ApiCluster, obj: Object) -> tuple[dict[str, Any], str]:
        return promotion(obj["spec"], parse_paddle_service_status(obj)), "promoted"

    _change(_Request(name, _key(service, namespace), output), change)


@app.command("abort")
def abort(
    service: Name,
    namespace: Namespace = "default",
    name: KubeClusterName = "demo",
    output: Output = Format.TEXT,
) -> None:
    """Take all requests from the canary; the stable revision answers them."""

    async def change(_: ApiCluster, obj: Object) -> tuple[dict[str, Any], str]:
        return abortion(obj["spec"], parse_paddle_service_status(obj)), "aborted"

    _change(_Request(name, _key(service, namespace), output), change)


@app.command("predict")
def predict(
    service: Name,
    data: Annotated[str, typer.Option("--data", "-d", help="JSON, or @FILE; - reads standard input.")],
    path: Annotated[
        str, typer.Option("--path", help="Path of the request; default: that of the model.")
    ] = "",
    gateway: Annotated[
        str, typer.Option("--gateway", help="URL of the gateway; default: past it, to the stable revision.")
    ] = "",
    namespace: Namespace = "default",
    name: KubeClusterName = "demo",
    output: Output = Format.TEXT,
) -> None:
    """Send one request to a service and print its answer; exit code 1 when it is refused.

    [bold]Examples[/bold]

    [cyan]paddlewheel service predict digits --data @digit.json[/cyan]  asks the stable revision

    [cyan]paddlewheel service predict lac --path /lac/prediction --data '{"feed": [], "fetch": []}'[/cyan]
    """
    status, answer = asyncio.run(_predict(name, _key(service, namespace), path, gateway, _body(data)))
    if output is Format.JSON:
        print_json({"status": status, "answer": _json_or_text(answer)})
    else:
        print_line(answer)
    if status >= 300:
        raise typer.Exit(1)


# What is read


async def _listed(cluster: str, namespace: str) -> list[Object]:
    where = target(cluster)
    await where.check()
    async with await connect(where.kubeconfig) as api:
        try:
            return sorted(await api.list(PADDLE_SERVICES, namespace), key=key_of)
        except NotFound:
            raise Permanent("NotInstalled", _NO_KIND) from None


_NO_KIND = "the cluster does not know PaddleService: install the chart of this version"


async def _read(cluster: str, key: Key) -> Object:
    where = target(cluster)
    await where.check()
    async with await connect(where.kubeconfig) as api:
        return await _get(api, key)


async def _get(api: ApiCluster, key: Key) -> Object:
    try:
        return await api.get(PADDLE_SERVICES, key)
    except NotFound:
        there = sorted(str(key_of(obj)) for obj in await api.list(PADDLE_SERVICES))
        known = ", ".join(there[:10]) or "none"
        raise Permanent("NoSuchService", f"no PaddleService {key}; there are: {known}") from None


def _key(service: str, namespace: str) -> Key:
    within, _, name = service.rpartition("/")
    return Key(within or namespace, name)


def earlier(status: PaddleServiceStatus, to: str) -> RevisionStatus:
    """The revision of a number or name; without one the newest before the stable one that was ready once.

    Raises:
        Permanent: there is none.
    """
    numbers = ", ".join(f"{r.number} ({r.name})" for r in status.revisions) or "none"
    if to:
        found = next((r for r in status.revisions if to in (r.name, str(r.number))), None)
    else:
        stable = status.revision(status.stable)
        last = stable.number if stable else 0
        found = next((r for r in status.revisions if r.number < last and r.was_ready), None)
    if found is None:
        wanted = f"no revision {to}" if to else "no earlier revision that was ever ready"
        raise Permanent("NoSuchRevision", f"{wanted} is kept; there are: {numbers}")
    return found


# What is changed


@dataclass(frozen=True)
class _Request:
    """Which object to change, and how to say so."""

    cluster: str
    key: Key
    output: Format


Change = Callable[[ApiCluster, Object], Any]


def _change(request: _Request, change: Change) -> None:
    said = asyncio.run(_changed(request, change))
    if request.output is Format.JSON:
        print_json({"service": str(request.key), "done": said})
    else:
        print_line(f"{request.key}: {said}; `paddlewheel service show {request.key}` shows its effect")


async def _changed(request: _Request, change: Change) -> str:
    """The patch holds for the version that was read: nobody's change is overwritten."""
    where = target(request.cluster)
    await where.check()
    async with await connect(where.kubeconfig) as api:
        obj = await _get(api, request.key)
        patch, said = await change(api, obj)
        metadata = {**patch.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
        await api.patch(PADDLE_SERVICES, request.key, {**patch, "metadata": metadata})
    return str(said)


# Predictions


def _body(data: str) -> bytes:
    """Raises Permanent for what is no JSON."""
    try:
        text = _text(data)
        orjson.loads(text)
    except OSError as error:
        raise Permanent("InvalidData", f"--data {data}: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise Permanent("InvalidData", f"--data is no JSON: {error}; a file is named as @FILE") from None
    return text


def _json_or_text(answer: str) -> Any:
    try:
        return orjson.loads(answer)
    except orjson.JSONDecodeError:
        return answer


def _text(data: str) -> bytes:
    if data == "-":
        return typer.get_binary_stream("stdin").read()
    return Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()


async def _predict(cluster: str, key: Key, path: str, gateway: str, body: bytes) -> tuple[int, str]:
    where = target(cluster)
    await where.check()
    async with await connect(where.kubeconfig) as api:
        obj = await _get(api, key)
    path = path or model_path(obj)
    if gateway:
        return await ask_gateway(gateway, parse_paddle_service_status(obj).url, path, body)
    return await ask_stable(where.tools, key, path, body)


def model_path(obj: Object) -> str:
    """Where a model takes requests of the Open Inference Protocol.

    Raises:
        Permanent: the service has an image of the user's own, whose path only the user knows.
    """
    model = obj["spec"]["default"].get("model")
    if model is None:
        raise Permanent("PathNeeded", "the service runs an image: name the path that it answers with --path")
    return f"/v2/models/{model.get('name') or obj['metadata']['name']}/infer"


# Tables


def _about(obj: Object) -> Json:
    return {"name": key_of(obj).name, "namespace": key_of(obj).namespace}


def _ready(status: PaddleServiceStatus) -> str:
    found = next((c for c in status.conditions if c.type == "Ready"), None)
    return found.status if found else "Unknown"


def _shares(status: PaddleServiceStatus) -> str:
    return ", ".join(f"{r.name} {r.traffic} %" for r in status.revisions if r.traffic)


def _tables(obj: Object, status: PaddleServiceStatus) -> Iterator[Table]:
    address = status.address.url if status.address else ""
    about = Table(title=str(key_of(obj)), show_header=False)
    about.add_row("mode", status.mode)
    about.add_row("url", status.url)
    about.add_row("in the cluster", address)
    yield about
    conditions = Table("condition", "status", "reason", "message")
    for condition in status.conditions:
        conditions.add_row(condition.type, condition.status, condition.reason, condition.message)
    yield conditions
    yield _revisions(status)
    if status.rollout:
        yield _rollout(status)


def _revisions(status: PaddleServiceStatus) -> Table:
    table = Table("no", "revision", "role", "serves", "traffic", "ready", "since", "reason", "message")
    for revision in status.revisions:
        since = revision.since.isoformat(timespec="seconds") if revision.since else ""
        pods = f"{revision.ready}/{revision.replicas}"
        served = _served(revision)
        share = f"{revision.traffic} %" if revision.traffic else ""
        table.add_row(
            str(revision.number), revision.name, revision.role, served, share, pods, since,
            revision.reason, revision.message,
        )  # fmt: skip
    return table


def _served(revision: RevisionStatus) -> str:
    model = revision.model
    return f"model {model.name} {model.version}" if model else revision.image


def _rollout(status: PaddleServiceStatus) -> Table:
    rollout = status.rollout
    assert rollout is not None
    title = f"{rollout.candidate}: {rollout.phase}, step {rollout.step}, {rollout.percent} %"
    table = Table("side", "requests", "errors", "p95 ms", title=f"{title} {rollout.message}".strip())
    if rollout.verdict:
        for side, counts in (("stable", rollout.verdict.stable), ("candidate", rollout.verdict.candidate)):
            figures = (str(counts.requests), str(counts.errors), f"{counts.p95 * 1000:.1f}")
            table.add_row(side, *figures)
    return table
