"""`paddlewheel job`: training jobs from their creation to their end, without YAML."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from paddlewheel.cli import job_tables as tables
from paddlewheel.cli.explain import Explanation, explain, print_explanation, with_lines
from paddlewheel.cli.job_changes import (
    Change,
    Json,
    restart,
    resumption,
    scaling,
    suspension,
)
from paddlewheel.cli.job_run import run
from paddlewheel.cli.listing import print_objects
from paddlewheel.cli.object_watch import STATUS_INTERVAL_SECONDS
from paddlewheel.cli.output import (
    Format,
    Output,
    confirm,
    print_json,
    print_line,
)
from paddlewheel.cli.table import print_page
from paddlewheel.cli.target import Target, Where, find, on_cluster
from paddlewheel.contracts.crds.limits import REPLICAS
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import finalizers_of, key_of, status_of, uid_of
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube.ports import PADDLE_JOBS, Cluster, Object

app = typer.Typer(
    add_completion=False,
    help="""Training jobs (PaddleJob): run one without YAML, look at it, scale, suspend, restart or delete it.

[bold]Examples[/bold]

[cyan]paddlewheel job run --image team/train:1 --workers 2 -- python train.py[/cyan]  run and follow a job

[cyan]paddlewheel job list -A[/cyan]  every job, and why it does not run

[cyan]paddlewheel job show team-a/resnet[/cyan]  conditions, pods, restarts and results of one job

[cyan]paddlewheel job explain resnet[/cyan]  why it does not run, and what to do

[cyan]paddlewheel job scale resnet --workers 4[/cyan]  like `kubectl scale pdj/resnet --replicas 4`

[cyan]paddlewheel job suspend resnet[/cyan]  free its nodes; `job resume` continues it
""",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The PaddleJob: name, or namespace/name.", metavar="JOB")]
_STATE = {"phase": "", "ready": " ready"}
"""Fields of the status that a question shows, each with the text after its value."""


app.command("run", context_settings={"allow_interspersed_args": False})(run)


@app.command("list")
@on_cluster(lists=True)
def list_(
    where: Where,
    output: Output = Format.TEXT,
) -> None:
    """List jobs with their phase, ready pods and what keeps them from running."""
    print_objects(where, PADDLE_JOBS, output, lambda found: tables.jobs(found, datetime.now(UTC)))


@app.command("show")
@on_cluster()
def show(
    where: Where,
    job: Name,
    output: Output = Format.TEXT,
) -> None:
    """Show state, conditions, pods by role, restarts by cause, results and the latest facts of a job."""
    found = asyncio.run(_found(where.key(job), where.target))
    if output is Format.JSON:
        print_json(found)
        return
    print_page(tables.job(found, datetime.now(UTC)))


@app.command("explain")
@on_cluster()
def explain_job(
    where: Where,
    job: Name,
    output: Output = Format.TEXT,
) -> None:
    """Explain with one reason why a job runs, waits or has failed, and show what to do about it."""
    print_explanation(asyncio.run(_explained(where.key(job), where.target)), output)


@app.command("scale")
@on_cluster()
def scale(
    where: Where,
    job: Name,
    workers: Annotated[int, typer.Option("--workers", help="Number of workers.", min=0, max=REPLICAS)],
    output: Output = Format.TEXT,
) -> None:
    """Change the number of workers of a job. With 0, the job has no pods and waits.

    A running job restarts with the new number of workers, from the last checkpoint of its program.

    [bold]Example[/bold]

    [cyan]paddlewheel job scale team-a/resnet --workers 4[/cyan]
    """
    asked = _Request(where.key(job), where.target, output)
    _change(asked, lambda found: scaling(found, workers))


@app.command("suspend")
@on_cluster()
def suspend(
    where: Where,
    job: Name,
    output: Output = Format.TEXT,
) -> None:
    """Delete the pods of a job, which frees its nodes, until the job is resumed.

    The job continues from the last checkpoint of its program.

    [bold]Example[/bold]

    [cyan]paddlewheel job suspend team-a/resnet[/cyan]
    """
    _change(_Request(where.key(job), where.target, output), suspension)


@app.command("resume")
@on_cluster()
def resume(
    where: Where,
    job: Name,
    output: Output = Format.TEXT,
) -> None:
    """Continue a suspended job.

    [bold]Example[/bold]

    [cyan]paddlewheel job resume team-a/resnet[/cyan]
    """
    _change(_Request(where.key(job), where.target, output), resumption)


@app.command("restart")
@on_cluster()
def restart_(
    where: Where,
    job: Name,
    output: Output = Format.TEXT,
) -> None:
    """Replace all pods of a running job together, as a new epoch.

    [bold]Example[/bold]

    [cyan]paddlewheel job restart team-a/resnet[/cyan]
    """
    asked = _Request(where.key(job), where.target, output)
    _change(asked, lambda found: restart(found, datetime.now(UTC)))


@app.command("delete")
@on_cluster()
def delete(
    where: Where,
    job: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    wait: Annotated[
        int,
        typer.Option(
            "--wait", metavar="SECONDS", min=0, help="Wait this long for the job to be gone; 0: do not wait."
        ),
    ] = 0,
    output: Output = Format.TEXT,
) -> None:
    """Delete a job and its pods. Asks for confirmation.

    [bold]Examples[/bold]

    [cyan]paddlewheel job delete resnet[/cyan]  shows the state of the job, and asks

    [cyan]paddlewheel job delete team-a/resnet --yes --wait 60[/cyan]  in a script
    """
    key = where.key(job)
    found = asyncio.run(_found(key, where.target))
    if not yes:
        _confirm(found)
    asyncio.run(_deleted(where.target, found, wait))
    if output is Format.JSON:
        print_json({"job": str(key), "action": "delete", "gone": bool(wait)})
        return
    print_line(f"{key} is gone" if wait else f"{key} is being deleted")


# Reading


async def _found(key: Key, where: Target) -> Object:
    async with where.connected() as api:
        return await find(api, PADDLE_JOBS, key)


async def _explained(key: Key, where: Target) -> Explanation:
    async with where.connected() as api:
        job = await find(api, PADDLE_JOBS, key)
        return await with_lines(api, explain(job), job)


# Changing


@dataclass(frozen=True)
class _Request:
    """The job to change, and the format of the output."""

    key: Key
    where: Target
    output: Format


def _change(request: _Request, decide: Callable[[Json], Change]) -> None:
    change = asyncio.run(_changed(request, decide))
    if request.output is Format.JSON:
        print_json({"job": str(request.key), "message": change.summary, "changed": bool(change.patch)})
        return
    print_line(f"{request.key}: {change.summary}")


async def _changed(request: _Request, decide: Callable[[Json], Change]) -> Change:
    async with request.where.connected() as api:
        return await apply_change(api, request.key, decide)


async def apply_change(api: Cluster, key: Key, decide: Callable[[Json], Change]) -> Change:
    """Read a job, decide about a change, and write it.

    Raises:
        Permanent: there is no such job, or the change is refused.
    """
    job = await find(api, PADDLE_JOBS, key)
    change = decide(job)
    if change.patch:
        # A job that was deleted and created again in the meantime is another job.
        metadata = {**change.patch.get("metadata", {}), "uid": uid_of(job)}
        await api.patch(PADDLE_JOBS, key, {**change.patch, "metadata": metadata})
    return change


def _confirm(job: Object) -> None:
    status = status_of(job)
    state = ", ".join(f"{status[part]}{word}" for part, word in _STATE.items() if status.get(part))
    confirm(f"Delete PaddleJob {key_of(job)} ({state or 'not processed yet'})?")


async def _deleted(where: Target, job: Object, wait: int) -> None:
    # The API server has answered before the user was asked.
    async with where.connected(check=False) as api:
        await api.delete(PADDLE_JOBS, key_of(job), uid=uid_of(job))
        if wait:
            await wait_until_gone(api, job, wait)


async def wait_until_gone(api: Cluster, job: Object, seconds: float) -> None:
    """Wait until an object is gone. Raises Permanent when it still exists after this many seconds."""
    left = job
    try:
        async with asyncio.timeout(seconds):
            while uid_of(left) == uid_of(job):
                await asyncio.sleep(STATUS_INTERVAL_SECONDS)
                with suppress(Retry):
                    left = await api.get(PADDLE_JOBS, key_of(job))
    except NotFound:
        return
    except TimeoutError:
        held = ", ".join(finalizers_of(left)) or "its pods"
        problem = f"{key_of(job)} is still being deleted after {seconds:g} s, held by {held}"
        raise Permanent("NotYet", f"{problem}; the deletion continues while job-controller runs") from None
