"""`paddlewheel uninstall`: removes the services from a cluster, and shows what stays."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

import orjson
import typer

from paddlewheel.cli.install import SYSTEM_NAMESPACE
from paddlewheel.cli.output import Format, Output, confirm, console, print_json, print_line
from paddlewheel.cli.progress import Report, progress_reporter
from paddlewheel.cli.table import Table, print_table
from paddlewheel.cli.target import Target, Where, on_cluster
from paddlewheel.cli.tools import Tools
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import finalizers_of, key_of, version_of
from paddlewheel.core.errors import Conflict, NotFound, PaddlewheelError, Permanent
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import (
    PADDLE_JOBS,
    PADDLE_SERVICES,
    SAMPLE_JOBS,
    SAMPLE_SETS,
    TRIGGERS,
    Object,
    Resource,
)

KINDS = (TRIGGERS, PADDLE_SERVICES, PADDLE_JOBS, SAMPLE_JOBS, SAMPLE_SETS)
"""The order of deletion: a data set is deleted after the objects that use it."""
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_CONTROLLERS = "app.kubernetes.io/part-of=paddlewheel"
_RELEASE = "paddlewheel"
_FINALIZERS = (
    "finalizers.paddlepaddle.org",
    "paddlepaddle.org/",
    "elasticserving.paddlepaddle.org/",
    "events.paddlepaddle.org/",
)
DELETION_TIMEOUT_SECONDS = 120.0
"""Time to wait after the last object has gone."""
_LIST_INTERVAL_SECONDS = 2.0
"""Time between two lists of all objects that are left."""
_TRIES = 5
_DATA = "files in your object stores, metadata engines and the nodes' cache directories"

app = typer.Typer(add_completion=False)


@app.command()
@on_cluster(namespaced=False)
def uninstall(
    where: Where,
    objects: Annotated[
        bool, typer.Option("--objects", help="Delete all jobs, data sets, services and triggers first.")
    ] = False,
    crds: Annotated[bool, typer.Option("--crds", help="Delete the CRDs too; implies --objects.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Remove Paddlewheel's services and NATS from a cluster; objects and CRDs stay by default.

    With --objects, objects are deleted while the services still run, so that nothing is left on the nodes.
    Objects that stay lose the finalizers of Paddlewheel, so that they can be deleted without it. Their pods
    continue to run, and a later installation manages them again.

    [bold]Examples[/bold]

    [cyan]paddlewheel uninstall[/cyan]  asks first, and shows what stays

    [cyan]paddlewheel uninstall --objects --crds[/cyan]  removes everything except data

    [cyan]paddlewheel cluster down[/cyan]  deletes a whole embedded cluster
    """
    found = asyncio.run(_survey(where.target))
    _describe(found, objects or crds, crds, quiet=output is Format.JSON)
    if not yes:
        confirm(f"Uninstall from {found.server}?")
    with progress_reporter("uninstall", quiet=output is Format.JSON) as report:
        left = asyncio.run(_remove(where.target, found, objects or crds, crds, report))
    if output is Format.JSON:
        print_json({"cluster": found.server, "removed": found.release, "left": left})
        raise typer.Exit(1 if left and (objects or crds) else 0)
    print_line("Paddlewheel is uninstalled" if found.release else "no services were installed")
    there = ", ".join(f"{count} {kind}" for kind, count in left.items())
    if left and not (objects or crds):
        print_line(f"left: {there}")
    elif left:
        advice = "finalizers of other programs hold them; `kubectl get -o yaml` shows these finalizers"
        raise Permanent("NotDeleted", f"left: {there}: {advice}")


@dataclass(frozen=True)
class Found:
    """The installation on a cluster."""

    server: str
    release: bool
    objects: dict[str, int]


async def _survey(where: Target) -> Found:
    await where.check()
    # --all: a release that is pending or being uninstalled has services too.
    listed = await where.tools.run(
        "helm", "list", "--all", "--namespace", SYSTEM_NAMESPACE, "--output", "json"
    )
    release = any(entry["name"] == _RELEASE for entry in orjson.loads(listed))
    async with where.connected(check=False) as api:
        if not release:
            await refuse_other_installations(api)
        counts = {kind.kind: len(await _list(api, kind)) for kind in KINDS}
    return Found(str(where), release, {kind: count for kind, count in counts.items() if count})


async def refuse_other_installations(api: ApiCluster) -> None:
    """Raises Permanent when controllers of another installation run: the finalizers belong to them."""
    deployments = await api.list(DEPLOYMENTS, label_selector=_CONTROLLERS)
    if there := ", ".join(sorted(str(key_of(deployment)) for deployment in deployments)):
        raise Permanent(
            "InstalledElsewhere",
            f"no release {_RELEASE} in namespace {SYSTEM_NAMESPACE}, but these controllers run: {there}. "
            "Uninstall them first, in the way they were installed (`helm list --all --all-namespaces`)",
        )


def _describe(found: Found, objects: bool, crds: bool, *, quiet: bool) -> None:
    if quiet:
        return
    table = Table(("what", "becomes"), found.server, wraps={"what"}, states={"becomes"})
    table.add_row(
        "job-, dataset-, trigger-, serving-controller, NATS with all stored events", _fate(found.release)
    )
    for kind, count in found.objects.items():
        table.add_row(f"{count} {kind}", _fate(objects))
    table.add_row("custom resource definitions", _fate(crds))
    table.add_row(f"namespace {SYSTEM_NAMESPACE}, with the volumes of NATS if it has any", "stays")
    table.add_row(_DATA, "stays")
    print_table(table, console(stderr=True))


def _fate(removed: bool) -> str:
    return "removed" if removed else "stays"


async def _remove(where: Target, found: Found, objects: bool, crds: bool, report: Report) -> dict[str, int]:
    """Remove the installation; return the number of objects of each kind that are left."""
    async with where.connected(check=False) as api:
        if objects and found.release:
            for kind in KINDS:
                await delete_all(api, kind, report)
        if found.release:
            report("services and NATS", 0.6)
            await _uninstall_release(where.tools)
        refused = [problem for kind in KINDS for problem in await release_all(api, kind)]
        if objects:
            for kind in KINDS:
                await _delete_listed(api, kind)
        if crds:
            report("custom resource definitions", 0.9)
            await _delete_crds(api, report)
        left = {kind.kind: len(await _list(api, kind)) for kind in KINDS}
    if refused:
        raise Permanent(
            "NotReleased", f"the finalizers of Paddlewheel were not removed: {'; '.join(refused)}"
        )
    report("done", 1.0)
    return {kind: count for kind, count in left.items() if count}


async def _delete_crds(api: ApiCluster, report: Report) -> None:
    """Delete the CRDs, and wait until they are gone or only held by objects with other finalizers.

    Raises:
        Permanent: some still exist after `DELETION_TIMEOUT_SECONDS`.
    """
    for kind in KINDS:
        await api.delete(CRDS, _crd(kind))
    going: list[Resource] = []
    try:
        async with asyncio.timeout(DELETION_TIMEOUT_SECONDS):
            while going := [kind for kind in KINDS if await _is_going(api, kind)]:
                report(f"waiting for {len(going)} custom resource definitions to be deleted", 0.95)
                await asyncio.sleep(_LIST_INTERVAL_SECONDS)
    except TimeoutError:
        names = ", ".join(_crd(kind).name for kind in going)
        raise Permanent(
            "NotDeleted",
            f"still being deleted after {DELETION_TIMEOUT_SECONDS:.0f} s: {names}. "
            "`kubectl describe crd` shows what they wait for",
        ) from None


def _crd(kind: Resource) -> Key:
    return Key("", f"{kind.plural}.{kind.group}")


async def _is_going(api: ApiCluster, kind: Resource) -> bool:
    try:
        await api.get(CRDS, _crd(kind))
    except NotFound:
        return False
    return not any(finalizers_of(obj) for obj in await _list(api, kind))


async def _uninstall_release(tools: Tools) -> None:
    await tools.run(
        "helm", "uninstall", _RELEASE, "--namespace", SYSTEM_NAMESPACE, "--wait", "--timeout", "3m"
    )


async def delete_all(api: ApiCluster, kind: Resource, report: Report) -> None:
    """Delete all objects of a kind. Raises Permanent when some stay, so that nothing is uninstalled."""
    left = await _delete_listed(api, kind)
    try:
        async with asyncio.timeout(DELETION_TIMEOUT_SECONDS) as limit:
            while now := await _list(api, kind):
                if len(now) < len(left):
                    limit.reschedule(asyncio.get_running_loop().time() + DELETION_TIMEOUT_SECONDS)
                left = now
                report(f"waiting for {len(left)} {kind.plural} to be deleted", 0.1)
                await asyncio.sleep(_LIST_INTERVAL_SECONDS)
    except TimeoutError:
        stuck = ", ".join(f"{key_of(obj)} ({', '.join(finalizers_of(obj))})" for obj in left[:5])
        raise Permanent(
            "NotDeleted",
            f"no object has gone for {DELETION_TIMEOUT_SECONDS:.0f} s: {kind.kind} {stuck}. "
            "The log of their controller has the reason; "
            "run the command without --objects to leave them and release their finalizers",
        ) from None


async def _delete_listed(api: ApiCluster, kind: Resource) -> list[Object]:
    """Delete the objects of a kind and return them. Objects with finalizers still exist afterwards."""
    listed = await _list(api, kind)
    answers = await asyncio.gather(*(api.delete(kind, key_of(obj)) for obj in listed), return_exceptions=True)
    if refusal := next((answer for answer in answers if isinstance(answer, BaseException)), None):
        raise refusal
    return listed


async def release_all(api: ApiCluster, kind: Resource) -> list[str]:
    """Remove the finalizers of Paddlewheel, because no controller is left. Return the refusals."""
    refused = []
    for obj in await _list(api, kind):
        try:
            await _release(api, kind, obj)
        except PaddlewheelError as error:
            refused.append(f"{kind.kind} {key_of(obj)}: {error}")
    return refused


async def _release(api: ApiCluster, kind: Resource, obj: Object) -> None:
    """Remove the finalizers. The patch replaces the whole list, so it applies only to the version read."""
    for _ in range(_TRIES):
        kept = [name for name in finalizers_of(obj) if not name.startswith(_FINALIZERS)]
        if len(kept) == len(finalizers_of(obj)):
            return
        try:
            changed = {"finalizers": kept, "resourceVersion": version_of(obj)}
            await api.patch(kind, key_of(obj), {"metadata": changed})
            return
        except NotFound:
            return
        except Conflict:
            try:
                obj = await api.get(kind, key_of(obj))
            except NotFound:
                return
    raise Permanent("Conflict", "is changed by other clients all the time; run the command again")


async def _list(api: ApiCluster, kind: Resource) -> list[Object]:
    """All objects of a kind; [] when its CRD is not installed."""
    try:
        return await api.list(kind)
    except NotFound:
        return []
