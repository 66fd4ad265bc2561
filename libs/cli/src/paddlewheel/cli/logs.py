"""`paddlewheel logs`: the output of a job's pods, or the last lines kept after the pods are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated

import orjson
import typer
from rich.color import ColorSystem
from rich.style import Style

from paddlewheel.cli.job_changes import is_final
from paddlewheel.cli.output import Format, Output, console, print_line, while_read
from paddlewheel.cli.target import Target, Where, find, on_cluster
from paddlewheel.contracts.job_names import kept_logs_name
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import is_controlled_by, key_of, uid_of
from paddlewheel.core.errors import NotFound, PaddlewheelError, Permanent, Retry
from paddlewheel.core.tasks import end
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS, Object

_LABEL = "paddle-res-name"
"""Label of all pods of PaddleJobs, including the pods of the original operator."""
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
_RESUME_INTERVAL_SECONDS = 1.0
"""Pause before an interrupted log is read on."""

app = typer.Typer(add_completion=False)


@app.command()
@on_cluster()
def logs(
    where: Where,
    job: Annotated[str, typer.Argument(help="The PaddleJob: name, or namespace/name.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job has ended.")] = False,
    ranks: Annotated[
        list[str] | None, typer.Option("--rank", help="Only these pods: worker-0, ps-1 ... (repeatable)")
    ] = None,
    tail: Annotated[int, typer.Option("--tail", help="Only the last N lines of each pod; -1 = all.")] = -1,
    output: Output = Format.TEXT,
) -> None:
    """Print the logs of all pods of a job, each line with its rank.

    When the pods have been deleted (cleanPodPolicy), the last lines that were kept with the job are printed.

    [bold]Examples[/bold]

    [cyan]paddlewheel logs digits -n paddle-demo --tail 10[/cyan]  the last lines of every pod

    [cyan]paddlewheel logs team-a/resnet --follow --rank worker-0[/cyan]  one pod, until the job has ended
    """
    wanted = Wanted(where.key(job), frozenset(ranks or ()), tail)
    asyncio.run(while_read(_run(where.target, wanted, follow, Printer(output))))


@dataclass(frozen=True)
class Wanted:
    """The job, its ranks (all when empty) and the number of lines of each (all when negative)."""

    job: Key
    ranks: frozenset[str] = frozenset()
    tail: int = -1

    def includes(self, rank: str) -> bool:
        return not self.ranks or rank in self.ranks

    def rank_of(self, pod: str) -> str:
        """The rank of a pod: `worker-0` for `<job>-worker-0`."""
        return pod.removeprefix(f"{self.job.name}-")


class Printer:
    """Prints lines unchanged, with a prefix that has a colour on a terminal."""

    def __init__(self, output: Format) -> None:
        self._output = output
        self._colours = ColorSystem.STANDARD if console().color_system else None
        self._notes = console(stderr=True)
        self._prefixes: dict[str, str] = {}

    def line(self, rank: str, text: str) -> None:
        if self._output is Format.JSON:
            print_line(orjson.dumps({"rank": rank, "line": text}).decode())
        else:
            print_line(f"{self._prefix(rank)} | {text}")

    def _prefix(self, rank: str) -> str:
        if rank not in self._prefixes:
            colour = _COLOURS[len(self._prefixes) % len(_COLOURS)]
            self._prefixes[rank] = Style(color=colour).render(rank, color_system=self._colours)
        return self._prefixes[rank]

    def note(self, text: str) -> None:
        self._notes.print(text, style="dim", soft_wrap=True)


async def _run(where: Target, wanted: Wanted, follow: bool, printer: Printer) -> None:
    async with where.connected() as api:
        await print_logs(api, wanted, follow, printer)


async def print_logs(api: ApiCluster, wanted: Wanted, follow: bool, printer: Printer) -> Object:
    """Print the logs of the pods, and the kept lines of ranks without a readable pod.

    Returns:
        the job as it was read last.

    Raises:
        Permanent: there is no such job or rank, the log of a rank could not be read, or a watch is forbidden.
    """
    job = await find(api, PADDLE_JOBS, wanted.job)
    reading = _Reading(api, job, wanted, printer)
    if follow and not is_final(job):
        await _Follower(reading).run()
    else:
        for pod in await reading.pods():
            await reading.print_pod(pod)
    await reading.print_kept()
    await reading.check()
    return reading.job


@dataclass
class _Reading:
    """The logs of one job, the known ranks, the ranks that were read, and those whose reading failed."""

    api: ApiCluster
    job: Object
    wanted: Wanted
    printer: Printer
    known: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    async def pods(self) -> list[Object]:
        """The wanted pods of the job."""
        found = await self.api.list(PODS, key_of(self.job).namespace, label_selector=_LABEL)
        return [pod for pod in sorted(found, key=key_of) if self.takes(pod)]

    def takes(self, pod: Object) -> bool:
        if not is_controlled_by(pod, uid_of(self.job)):
            return False
        rank = self.rank_of(pod)
        self.known.add(rank)
        return self.wanted.includes(rank)

    def rank_of(self, pod: Object) -> str:
        return self.wanted.rank_of(key_of(pod).name)

    async def print_pod(self, pod: Object) -> None:
        rank = self.rank_of(pod)
        try:
            async with aclosing(self.api.stream_log(key_of(pod), self.query(pod))) as lines:
                async for line in lines:
                    self.printer.line(rank, _text(line))
            self.read.add(rank)
        except PaddlewheelError as error:
            self.note_failure(rank, error)

    def note_failure(self, rank: str, error: PaddlewheelError) -> None:
        self.failed.add(rank)
        self.printer.note(f"{rank}: {error}")

    def query(self, pod: Object) -> dict[str, str]:
        container = str(pod["spec"]["containers"][0]["name"])
        tail = self.wanted.tail
        return {"container": container} | ({"tailLines": str(tail)} if tail >= 0 else {})

    async def print_kept(self) -> None:
        """Print the kept lines of ranks whose pods could not be read."""
        kept = {self.wanted.rank_of(pod): text for pod, text in (await self._kept()).items()}
        self.known.update(kept)
        left = [rank for rank in sorted(kept) if self.wanted.includes(rank) and rank not in self.read]
        if left:
            self.printer.note("these pods are deleted; the last lines that were kept with the job:")
        for rank in left:
            self.read.add(rank)
            lines = kept[rank].splitlines()
            first = max(0, len(lines) - self.wanted.tail) if self.wanted.tail >= 0 else 0
            for line in lines[first:]:
                self.printer.line(rank, line)

    async def _kept(self) -> dict[str, str]:
        key = key_of(self.job)
        try:
            kept = await self.api.get(CONFIG_MAPS, Key(key.namespace, kept_logs_name(key.name)))
        except NotFound:
            return {}
        except PaddlewheelError as error:
            self.printer.note(f"the lines that were kept with the job could not be read: {error}")
            return {}
        return (kept.get("data") or {}) if is_controlled_by(kept, uid_of(self.job)) else {}

    async def check(self) -> None:
        """Raises Permanent when a rank does not exist, or its log could not be read."""
        if missing := self.wanted.ranks - self.known:
            raise Permanent("NoSuchRank", f"--rank: {self.problem_of(missing)}")
        if not self.read:
            phase = (self.job.get("status") or {}).get("phase") or "not processed by job-controller yet"
            advice = f"see `kubectl describe pdj {key_of(self.job).name}`"
            problem = "has no readable pod and no kept lines"
            raise Permanent("NoLogs", f"PaddleJob {key_of(self.job)} {problem}; phase: {phase}; {advice}")
        if unread := ", ".join(sorted(self.failed - self.read)):
            raise Permanent("NotRead", f"the log of {unread} could not be read: see the messages above")

    def problem_of(self, missing: Set[str]) -> str:
        there = ", ".join(sorted(self.known)) or "none"
        return f"PaddleJob {key_of(self.job)} has no pod {', '.join(sorted(missing))}; there are: {there}"


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r\n")


class _Follower:
    """Reads the log of every container that starts, until the job has ended."""

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading
        self._seen: set[str] = set()
        self._exists = False
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Follow the job. Logs that are being read when the job ends are read to their end.

        Raises:
            Permanent: the user may not watch the job or its pods.
        """
        await self._note_missing()
        try:
            await self._follow()
        except ExceptionGroup as failed:
            error = failed.exceptions[0]
            if not isinstance(error, Permanent):
                raise
            advice = "`paddlewheel logs` without --follow needs no right to watch"
            raise Permanent(error.reason, f"{error.message}; {advice}") from None

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(self._follow_job()), tasks.create_task(self._follow_pods(tasks))]
            await self._ended.wait()
            try:
                for pod in await self._reading.pods():
                    self._start(pod, tasks)
            except PaddlewheelError as error:
                self._reading.printer.note(f"pods: {error}")
            await end(*watches)

    async def _note_missing(self) -> None:
        """Report missing ranks and wait for them: the job may not have all its pods yet."""
        await self._reading.pods()
        if missing := self._reading.wanted.ranks - self._reading.known:
            self._reading.printer.note(f"{self._reading.problem_of(missing)}; waiting for it")

    async def _follow_job(self) -> None:
        job, api = self._reading.job, self._reading.api
        key = key_of(job)
        only = f"metadata.name={key.name}"
        watch = api.watch(
            PADDLE_JOBS, key.namespace, field_selector=only, on_synced=self._on_listed, raises_permanent=True
        )
        async with aclosing(watch) as changes:
            async for change in changes:
                if uid_of(change.obj) == uid_of(job):
                    self._exists, self._reading.job = True, change.obj
                    if change.type == "DELETED" or is_final(change.obj):
                        self._ended.set()

    def _on_listed(self) -> None:
        """A job that was deleted before the watch began is not reported."""
        if not self._exists:
            self._ended.set()

    async def _follow_pods(self, tasks: asyncio.TaskGroup) -> None:
        namespace = key_of(self._reading.job).namespace
        watch = self._reading.api.watch(PODS, namespace, label_selector=_LABEL, raises_permanent=True)
        async with aclosing(watch) as changes:
            async for change in changes:
                if self._reading.takes(change.obj):
                    self._start(change.obj, tasks)

    def _start(self, pod: Object, tasks: asyncio.TaskGroup) -> None:
        """Read the log of each container once; a restarted container is a new one."""
        container = _started(pod)
        if container and container not in self._seen:
            self._seen.add(container)
            tasks.create_task(self._read(pod))

    async def _read(self, pod: Object) -> None:
        reading, rank = self._reading, self._reading.rank_of(pod)
        query = reading.query(pod) | {"follow": "true", "timestamps": "true"}
        position = Position()
        while True:
            try:
                async for time, text in _stamped(reading.api, pod, query):
                    if position.takes(time):
                        reading.read.add(rank)
                        reading.printer.line(rank, text)
                reading.read.add(rank)
                return
            except Retry as error:
                reading.printer.note(f"{rank}: {error.message}")
            except PaddlewheelError as error:
                reading.note_failure(rank, error)
                return
            if position.last:
                query = {n: v for n, v in query.items() if n != "tailLines"} | {"sinceTime": position.last}
                position.resume()
            await asyncio.sleep(_RESUME_INTERVAL_SECONDS)


@dataclass
class Position:
    """The position in a log. Times are texts of fixed width, as the kubelet writes them."""

    last: str = ""
    count: int = 0
    """Lines with the time `last`."""
    _resuming: bool = False
    _again: int = 0
    """Number of lines with the time `last` that are read again and skipped."""

    def resume(self) -> None:
        """Prepare for lines that are read again: all lines since the second of `last`."""
        self._resuming, self._again = True, self.count

    def takes(self, time: str) -> bool:
        """True for a line that was not read before."""
        if self._resuming and time < self.last:
            return False
        if self._resuming and time == self.last and self._again:
            self._again -= 1
            return False
        self._resuming = False
        self.count = self.count + 1 if time == self.last else 1
        self.last = time
        return True


async def _stamped(api: ApiCluster, pod: Object, query: dict[str, str]) -> AsyncIterator[tuple[str, str]]:
    """Yield time and text. Only the first part of a line begins with a time; the other parts share it."""
    time, begins = "", True
    async with aclosing(api.stream_log(key_of(pod), query)) as lines:
        async for line in lines:
            text = _text(line)
            if begins:
                time, _, text = text.partition(" ")
            begins = line.endswith(b"\n")
            yield time, text


def _started(pod: Object) -> str:
    """Identity of the current run of the first container, "" before it has started."""
    name = pod["spec"]["containers"][0]["name"]
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status["name"] == name and not (status.get("state") or {}).get("waiting"):
            return str(status.get("containerID") or "")
    return ""
