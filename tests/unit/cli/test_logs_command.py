"""`paddlewheel logs` over a cluster in memory whose containers write what a script says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

import pytest

from paddlewheel.cli import logs
from paddlewheel.cli.logs import Position, Printer, Wanted, print_logs
from paddlewheel.cli.output import Format
from paddlewheel.contracts.job_names import kept_logs_name
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.objects import owner_reference
from paddlewheel.kube.ports import CONFIG_MAPS, PADDLE_JOBS, PODS, Object, Resource
from paddlewheel.testkit.memory_cluster import MemoryCluster
from paddlewheel.testkit.wait import eventually

JOB = Key("team", "digits")
FIRST, SECOND, THIRD = (f"2026-01-01T00:00:0{n}.000000000Z" for n in (1, 2, 3))
CUT = Retry("ApiServerUnreachable", "cut")


class Cluster(MemoryCluster):
    """Each reading of a pod's log takes the pod's next script; an error ends it early."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: dict[str, list[list[bytes | Exception]]] = {}
        self.queries: list[dict[str, str]] = []
        self.job: Object = {}

    async def stream_log(self, pod: Key, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        self.queries.append(dict(query))
        for part in self.scripts[pod.name].pop(0):
            await asyncio.sleep(0)
            if isinstance(part, Exception):
                raise part
            yield part

    async def run_job(self, *ranks: str) -> None:
        metadata = {"namespace": JOB.namespace, "name": JOB.name}
        self.job = await self.create(PADDLE_JOBS, {"metadata": metadata, "spec": {}})
        for rank in ranks:
            status = {"containerStatuses": [{"name": "main", "containerID": rank, "state": {"running": {}}}]}
            pod = self.child(f"{JOB.name}-{rank}", labels={"paddle-res-name": rank})
            pod |= {"spec": {"containers": [{"name": "main"}]}}
            await self.create(PODS, pod)
            await self.patch(
                PODS, Key(JOB.namespace, f"{JOB.name}-{rank}"), {"status": status}, subresource="status"
            )

    def child(self, name: str, **metadata: Any) -> Object:
        owner = owner_reference(self.job, PADDLE_JOBS)
        return {
            "metadata": {"namespace": JOB.namespace, "name": name, "ownerReferences": [owner], **metadata}
        }

    async def keep(self, **lines: str) -> None:
        data = {f"{JOB.name}-{rank.replace('_', '-')}": text for rank, text in lines.items()}
        await self.create(CONFIG_MAPS, self.child(kept_logs_name(JOB.name)) | {"data": data})

    async def end_job(self) -> None:
        await self.patch(PADDLE_JOBS, JOB, {"status": {"phase": "Completed"}}, subresource="status")

    async def print(self, *ranks: str, follow: bool = False, tail: int = -1) -> None:
        wanted = Wanted(JOB, frozenset(ranks), tail)
        async with asyncio.timeout(30):
            await print_logs(cast(ApiCluster, self), wanted, follow, Printer(Format.TEXT))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_RESUME_INTERVAL_SECONDS", 0.0)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def stamped(*lines: tuple[str, str]) -> list[bytes | Exception]:
    return [f"{time} {text}\n".encode() for time, text in lines]


async def followed(cluster: Cluster, script: list[bytes | Exception], *more: list[bytes | Exception]) -> None:
    """Follow one pod through its scripts, then end the job."""
    await cluster.run_job("worker-0")
    cluster.scripts["digits-worker-0"] = [script, *more]
    task = asyncio.create_task(cluster.print(follow=True))
    await eventually(lambda: task.done() or not cluster.scripts["digits-worker-0"])
    await cluster.end_job()
    await task


async def test_lines_with_equal_or_older_times_are_all_printed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await followed(cluster, stamped((SECOND, "a"), (SECOND, "b"), (FIRST, "c")))
    assert capsys.readouterr().out == "".join(f"worker-0 | {text}\n" for text in "abc")


async def test_after_an_interruption_every_line_is_printed_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stamped((FIRST, "a"), (SECOND, "b"), (SECOND, "c"))
    again = stamped((FIRST, "a"), (SECOND, "b"), (SECOND, "c"), (SECOND, "d"), (THIRD, "e"), (SECOND, "f"))
    await followed(cluster, [*before, CUT], [CUT], again)
    assert capsys.readouterr().out == "".join(f"worker-0 | {text}\n" for text in "abcdef")
    assert [query.get("sinceTime") for query in cluster.queries] == [None, SECOND, SECOND]


async def test_every_step_of_a_progress_bar_is_printed_without_a_time(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await followed(cluster, [f"{FIRST} 10%\r".encode(), b"20%\r", b"done\n", f"{SECOND} next\n".encode()])
    assert capsys.readouterr().out.split("\n")[:4] == [
        f"worker-0 | {text}" for text in ("10%", "20%", "done", "next")
    ]


async def test_after_an_interruption_the_tail_does_not_hide_new_lines(cluster: Cluster) -> None:
    await cluster.run_job("worker-0")
    cluster.scripts["digits-worker-0"] = [[*stamped((FIRST, "a")), CUT], []]
    task = asyncio.create_task(cluster.print(follow=True, tail=1))
    await eventually(lambda: not cluster.scripts["digits-worker-0"])
    await cluster.end_job()
    await task
    assert ["tailLines" in query for query in cluster.queries] == [True, False]


async def test_lines_are_printed_as_they_are(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    text = "[red]:100:\t[/] " + "x" * 500
    await cluster.run_job("worker-0")
    cluster.scripts["digits-worker-0"] = [[f"{text}\n".encode()]]
    await cluster.print()
    assert capsys.readouterr().out == f"worker-0 | {text}\n"


def test_a_note_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(Format.TEXT).note("[/red] :100: gone")
    assert capsys.readouterr().err == "[/red] :100: gone\n"


@pytest.mark.parametrize("kept", [False, True])
async def test_a_rank_that_does_not_exist_is_refused_with_those_that_do(cluster: Cluster, kept: bool) -> None:
    await cluster.run_job("worker-0", "worker-1")
    if kept:
        await cluster.keep(ps_0="text")
    with pytest.raises(Permanent, match=r"NoSuchRank: .*no pod worker-9; there are: .*worker-0, worker-1"):
        await cluster.print("worker-9")


async def test_that_nothing_could_be_read_is_an_error(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.run_job("worker-0")
    cluster.scripts["digits-worker-0"] = [[Permanent("BadRequest", "is waiting to start")]]
    with pytest.raises(Permanent, match="NoLogs: PaddleJob team/digits"):
        await cluster.print()
    assert "worker-0: BadRequest: is waiting to start" in capsys.readouterr().err


async def test_a_rank_that_could_not_be_read_is_an_error(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.run_job("worker-0", "worker-1")
    refusal = Permanent("BadRequest", "is waiting to start")
    cluster.scripts = {"digits-worker-0": [[b"read\n"]], "digits-worker-1": [[refusal]]}
    with pytest.raises(Permanent, match="NotRead: the log of worker-1 could not be read"):
        await cluster.print()
    assert capsys.readouterr() == ("worker-0 | read\n", "worker-1: BadRequest: is waiting to start\n")


async def test_kept_lines_replace_the_log_that_could_not_be_read(cluster: Cluster) -> None:
    await cluster.run_job("worker-0")
    await cluster.keep(worker_0="kept")
    cluster.scripts["digits-worker-0"] = [[Permanent("BadRequest", "the node is gone")]]
    await cluster.print()


async def test_kept_lines_that_may_not_be_read_are_no_error_when_the_pods_were_read(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def intercept(_: str, resource: Resource, __: Key) -> None:
        if resource == CONFIG_MAPS:
            raise Permanent("Forbidden", 'cannot get resource "configmaps"')

    cluster.intercept = intercept
    await cluster.run_job("worker-0")
    cluster.scripts["digits-worker-0"] = [[b"read\n"]]
    await cluster.print()
    printed = capsys.readouterr()
    assert printed.out == "worker-0 | read\n"
    assert "could not be read: Forbidden: cannot get" in printed.err


@pytest.mark.parametrize("refused", [PADDLE_JOBS, PODS])
async def test_following_without_the_right_to_watch_ends_with_what_to_do(
    cluster: Cluster, refused: Resource
) -> None:
    def intercept(verb: str, resource: Resource, _: Key) -> None:
        if (verb, resource) == ("watch", refused):
            raise Permanent("Forbidden", f"cannot watch {resource.plural}")

    cluster.intercept = intercept
    await cluster.run_job()
    with pytest.raises(Permanent, match=f"Forbidden: cannot watch {refused.plural}; .*without --follow"):
        await cluster.print(follow=True)


async def test_following_a_job_that_is_deleted_before_it_is_watched_ends(cluster: Cluster) -> None:
    await cluster.run_job()
    watch = cluster.watch

    async def watch_late(*args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        await cluster.delete(PADDLE_JOBS, JOB)
        async for change in watch(*args, **options):
            yield change

    cluster.watch = watch_late  # type: ignore[method-assign]
    with pytest.raises(Permanent, match="NoLogs"):
        await cluster.print(follow=True)


async def test_following_prints_the_kept_lines_of_pods_that_were_gone_too_soon(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.run_job("worker-0")
    await cluster.keep(worker_0="not again", worker_1="kept")
    cluster.scripts["digits-worker-0"] = [stamped((FIRST, "read"))]
    task = asyncio.create_task(cluster.print(follow=True))
    await eventually(lambda: not cluster.scripts["digits-worker-0"])
    await cluster.end_job()
    await task
    assert capsys.readouterr().out == "worker-0 | read\nworker-1 | kept\n"


async def test_kept_lines_of_an_earlier_job_of_the_same_name_are_not_printed(cluster: Cluster) -> None:
    await cluster.run_job()
    cluster.job["metadata"]["uid"] = "earlier"
    await cluster.keep(worker_0="of the earlier job")
    with pytest.raises(Permanent, match="NoLogs"):
        await cluster.print()


@pytest.mark.parametrize(("tail", "expected"), [(0, ""), (1, "c"), (9, "abc"), (-1, "abc")])
async def test_the_tail_limits_kept_lines(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tail: int, expected: str
) -> None:
    await cluster.run_job()
    await cluster.keep(worker_0="a\nb\nc\n")
    await cluster.print(tail=tail)
    assert capsys.readouterr().out == "".join(f"worker-0 | {text}\n" for text in expected)


def test_a_line_that_was_not_read_before_is_taken_whatever_its_time() -> None:
    position = Position()
    assert [position.takes(time) for time in (SECOND, SECOND, FIRST, FIRST)] == [True] * 4
    position.resume()
    assert [position.takes(time) for time in (FIRST, FIRST, FIRST, FIRST)] == [False, False, True, True]
