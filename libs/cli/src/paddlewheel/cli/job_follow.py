"""Follows a PaddleJob from its creation to its end, and prints the output of its pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from paddlewheel.cli.job_changes import COMPLETED, RUNNING, Json, is_final, phase_of
from paddlewheel.cli.job_tables import results
from paddlewheel.cli.logs import Printer, Wanted, print_logs
from paddlewheel.cli.object_watch import STATUS_INTERVAL_SECONDS, ObjectWatch, watched
from paddlewheel.cli.output import Format
from paddlewheel.cli.progress import Report, progress_reporter
from paddlewheel.contracts.crds import parse_paddle_job_status
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import key_of, status_of
from paddlewheel.core.errors import PaddlewheelError, Permanent, Retry
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import PADDLE_JOBS, Object


async def follow(api: ApiCluster, job: Object, output: Format) -> Object:
    """Print the state of a job and the output of its pods until the job has ended; return the ended job.

    Raises:
        Permanent: the job was deleted before it ended.
    """
    quiet = output is Format.JSON
    async with watched(api, PADDLE_JOBS, job, is_final) as watch:
        with progress_reporter(str(key_of(job)), quiet=quiet) as report:
            seen = await _wait_until(watch, job, is_final if quiet else _writes, report)
        if quiet:
            return seen
        seen = await _print_lines(api, seen)
        return await _wait_until(watch, seen, is_final, lambda *_: None)


def _writes(job: Json) -> bool:
    return phase_of(job) == RUNNING or is_final(job)


async def _print_lines(api: ApiCluster, job: Object) -> Object:
    """Print the output of the pods, and return the job. Output that cannot be read is only reported."""
    printer = Printer(Format.TEXT)
    try:
        return await print_logs(api, Wanted(key_of(job)), not is_final(job), printer)
    except PaddlewheelError as error:
        printer.note(f"output: {error}")
    return job


async def _wait_until(
    watch: ObjectWatch, job: Object, is_reached: Callable[[Object], bool], report: Report
) -> Object:
    """Read a job until it has reached a state, and return it.

    Raises:
        Permanent: the job was deleted before it ended.
    """
    seen = job
    while not is_reached(seen):
        report(waits_for(seen), _ready_share(seen))
        await asyncio.sleep(STATUS_INTERVAL_SECONDS)
        with suppress(Retry):
            seen = await _again(watch, key_of(job))
    report(waits_for(seen), _ready_share(seen))
    return seen


async def _again(watch: ObjectWatch, key: Key) -> Object:
    if seen := await watch.look():
        return seen
    advice = f"`paddlewheel events --job {key} --since 1d --no-follow` shows what happened to it"
    raise Permanent("JobDeleted", f"{key} was deleted while this command followed it: {advice}")


def waits_for(job: Json) -> str:
    """Phase, ready pods, and the reason why the job does not proceed."""
    status = status_of(job)
    if not status.get("phase"):
        return "waiting for job-controller"
    why = ": ".join(str(status[name]) for name in ("reason", "message") if status.get(name))
    ready = f"{status['ready']} ready" if status.get("ready") else ""
    return ", ".join(part for part in (str(status["phase"]), ready, why) if part)


def _ready_share(job: Json) -> float:
    ready, _, wanted = str(status_of(job).get("ready") or "").partition("/")
    return int(ready) / int(wanted) if ready.isdecimal() and wanted.isdecimal() and int(wanted) else 0.0


def has_completed(job: Json) -> bool:
    """True when the job has succeeded."""
    return phase_of(job) == COMPLETED


def ending(job: Json) -> str:
    """How a job ended: `Completed after 3m20s; loss 0.000039`, `Failed after 5s: PodFailed: ...`."""
    status = parse_paddle_job_status(job)
    after = f" after {status.duration}" if status.duration else ""
    if not has_completed(job):
        why = ": ".join(part for part in (status.reason, status.message) if part)
        return f"{status.phase}{after}: {why}".removesuffix(": ")
    numbers = f"; {results(status)}" if status.results else ""
    return f"{status.phase}{after}{numbers}"
