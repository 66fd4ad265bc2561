"""`paddlewheel logs`: the output of a job's pods, or the last lines kept with it when they are deleted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated

import orjson
import typer
from rich.markup import escape

from paddlewheel.cli.output import Format, KubeClusterName, Output, console, print_line
from paddlewheel.cli.target import Target, target
from paddlewheel.contracts.job_names import kept_logs_name
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube import connect
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.objects import controller_uid, key_of, uid_of
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS, Object

_LABEL = "paddle-res-name"
"""A label of all pods of PaddleJobs."""
_FINAL = ("Completed", "Failed")
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
_PAUSE = 1.0
"""Seconds before an interrupted log is read on."""

app = typer.Typer(add_completion=False)


@app.command()
def logs(
    job: Annotated[str, typer.Argument(help="The PaddleJob: name, or namespace/name.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    ranks: Annotated[
        list[str] | None, typer.Option("--rank", help="Only these pods: worker-0, ps-1 ... (repeatable)")
    ] = None,
    tail: Annotated[int, typer.Option("--tail", help="Only the last N lines of each pod; -1 = all.")] = -1,
    name: KubeClusterName = "demo",
    output: Output = Format.TEXT,
) -> None:
    """Print the logs of all pods of a job, each line with its rank.

    When the job's pods have been deleted (cleanPodPolicy), the last lines kept with the job are printed.

    [bold]Examples[/bold]

    [cyan]paddlewheel logs digits -n paddle-demo --tail 10[/cyan]  the end of every pod's log

    [cyan]paddlewheel logs team-a/resnet --follow --rank worker-0[/cyan]  one pod's, until the job has ended
    """
    key = _key(job, namespace)
    wanted = _Wanted(key, frozenset(ranks or ()), tail)
    asyncio.run(_run(target(name), wanted, follow, _Printer(output)))


@dataclass(frozen=True)
class _Wanted:
    job: Key
    ranks: frozenset[str]
    tail: int

    def rank(self, pod: str) -> str | None:
        """`worker-0` of `<job>-worker-0`; None for one that was not asked for."""
        rank = pod.removeprefix(f"{self.job.name}-")
        return rank if not self.ranks or rank in self.ranks else None


def _key(job: str, namespace: str) -> Key:
    within, _, name = job.rpartition("/")
    return Key(within or namespace, name)


@dataclass
class _Printer:
    output: Format
    ranks: list[str] = field(default_factory=list)

    def line(self, rank: str, text: str) -> None:
        if self.output is Format.JSON:
            print_line(orjson.dumps({"rank": rank, "line": text}).decode())
            return
        if rank not in self.ranks:
            self.ranks.append(rank)
        colour = _COLOURS[self.ranks.index(rank) % len(_COLOURS)]
        console().print(f"[{colour}]{rank}[/] | {escape(text)}", soft_wrap=True)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        console(stderr=True).print(text, style="dim", soft_wrap=True)


async def _run(where: Target, wanted: _Wanted, follow: bool, printer: _Printer) -> None:
    await where.check()
    async with await connect(where.kubeconfig) as api:
        job = await _find(api, wanted.job)
        if follow and not _is_final(job):
            await _Follower(api, job, wanted, printer).run()
        else:
            await _print_now(api, job, wanted, printer)


async def _find(api: ApiCluster, key: Key) -> Object:
    try:
        return await api.get(PADDLE_JOBS, key)
    except NotFound:
        there = [str(key_of(job)) for job in await api.list(PADDLE_JOBS)]
        known = ", ".join(sorted(there)[:10]) or "none"
        raise Permanent("NoSuchJob", f"no PaddleJob {key}; there are: {known}") from None


async def _print_now(api: ApiCluster, job: Object, wanted: _Wanted, printer: _Printer) -> None:
    pods = [pod for pod in await _pods(api, job) if wanted.rank(key_of(pod).name)]
    for pod in pods:
        await _print_pod(api, pod, wanted, printer)
    if not pods:
        await _print_kept(api, job, wanted, printer)


async def _pods(api: ApiCluster, job: Object) -> list[Object]:
    pods = await api.list(PODS, key_of(job).namespace, label_selector=_LABEL)
    return sorted((p for p in pods if uid_of(job) in controller_uid(p)), key=lambda p: key_of(p).name)


async def _print_pod(api: ApiCluster, pod: Object, wanted: _Wanted, printer: _Printer) -> None:
    rank = wanted.rank(key_of(pod).name) or ""
    query = _query(pod, wanted.tail)
    try:
        async with aclosing(api.stream_log(key_of(pod), query)) as lines:
            async for line in lines:
                printer.line(rank, _text(line))
    except (Permanent, Retry) as error:
        printer.note(f"{rank}: {error.message}")


def _query(pod: Object, tail: int) -> dict[str, str]:
    container = str(pod["spec"]["containers"][0]["name"])
    return {"container": container} | ({"tailLines": str(tail)} if tail >= 0 else {})


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r\n")


async def _print_kept(api: ApiCluster, job: Object, wanted: _Wanted, printer: _Printer) -> None:
    key = key_of(job)
    try:
        kept = (await api.get(CONFIG_MAPS, Key(key.namespace, kept_logs_name(key.name)))).get("data") or {}
    except NotFound:
        printer.note(_why_nothing(job))
        return
    printer.note("the job's pods are deleted; these are the last lines kept with it")
    for pod in sorted(kept):
        if rank := wanted.rank(pod):
            lines = kept[pod].splitlines()
            for line in lines[-wanted.tail :] if wanted.tail > 0 else lines:
                printer.line(rank, line)


def _why_nothing(job: Object) -> str:
    status = job.get("status") or {}
    phase = status.get("phase") or "not yet seen by job-controller"
    return (
        f"PaddleJob {key_of(job)} has no pods and no kept lines; phase: {phase}. See `kubectl describe pdj`"
    )


def _is_final(job: Object) -> bool:
    return (job.get("status") or {}).get("phase") in _FINAL


class _Follower:
    """Reads every container of the job's pods as it starts, until the job has ended."""

    def __init__(self, api: ApiCluster, job: Object, wanted: _Wanted, printer: _Printer) -> None:
        self._api = api
        self._job = job
        self._wanted = wanted
        self._printer = printer
        self._seen: set[str] = set()
        self._readers: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Lines of containers that are still being read when the job ends are printed to their end."""
        async with asyncio.TaskGroup() as tasks:
            pods = tasks.create_task(self._follow_pods(tasks))
            await self._ended()
            for pod in await _pods(self._api, self._job):
                self._start(pod, tasks)
            pods.cancel()

    async def _ended(self) -> None:
        key = key_of(self._job)
        only = f"metadata.name={key.name}"
        async with aclosing(self._api.watch(PADDLE_JOBS, key.namespace, field_selector=only)) as changes:
            async for change in changes:
                if change.type == "DELETED" or _is_final(change.obj):
                    return

    async def _follow_pods(self, tasks: asyncio.TaskGroup) -> None:
        namespace = key_of(self._job).namespace
        async with aclosing(self._api.watch(PODS, namespace, label_selector=_LABEL)) as changes:
            async for change in changes:
                if uid_of(self._job) in controller_uid(change.obj):
                    self._start(change.obj, tasks)

    def _start(self, pod: Object, tasks: asyncio.TaskGroup) -> None:
        """Once for each container that has started: a restarted one is another."""
        rank, container = self._wanted.rank(key_of(pod).name), _started(pod)
        if rank and container and container not in self._seen:
            self._seen.add(container)
            tasks.create_task(self._read(pod, rank))

    async def _read(self, pod: Object, rank: str) -> None:
        query = _query(pod, self._wanted.tail) | {"follow": "true", "timestamps": "true"}
        last = ""
        while True:
            try:
                async for time, text in _stamped(self._api, pod, query):
                    if time > last:
                        last = time
                        self._printer.line(rank, text)
                return
            except Retry as error:
                self._printer.note(f"{rank}: {error.message}")
            except Permanent as error:
                self._printer.note(f"{rank}: {error.message}")
                return
            if last:
                query = {**query, "sinceTime": last}
            await asyncio.sleep(_PAUSE)


async def _stamped(api: ApiCluster, pod: Object, query: dict[str, str]) -> AsyncIterator[tuple[str, str]]:
    async with aclosing(api.stream_log(key_of(pod), query)) as lines:
        async for line in lines:
            time, _, text = _text(line).partition(" ")
            yield time, text


def _started(pod: Object) -> str:
    """Identity of the first container's current run, "" before it has begun."""
    name = pod["spec"]["containers"][0]["name"]
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status["name"] == name and not (status.get("state") or {}).get("waiting"):
            return str(status.get("containerID") or "")
    return ""
