"""Watches one PaddleJob from its creation to its end: what it waits for, what its pods write, how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from paddlewheel.cli.job_changes import COMPLETED, RUNNING, Json, is_final, phase_of
from paddlewheel.cli.job_tables import results
from paddlewheel.cli.logs import Printer, Wanted, print_logs
from paddlewheel.cli.output import Format
from paddlewheel.cli.progress import Report, step_reporter
from paddlewheel.cli.witness import Witness, watched
from paddlewheel.contracts.crds import parse_paddle_job_status
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import key_of, status_of
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import PADDLE_JOBS, Object

_POLL = 0.5
"""Seconds between two looks at the status."""


async def follow(api: ApiCluster, job: Object, output: Format) -> Object:
    """Return the job as it has ended; until then, say what it waits for, and print the lines of its pods.

    Raises:
        Permanent: it was deleted meanwhile.
    """
    quiet = output is Format.JSON
    async with watched(api, PADDLE_JOBS, job, is_final) as witness:
        with step_reporter(str(key_of(job)), quiet=quiet) as report:
            seen = await _wait_until(witness, job, is_final if quiet else _writes, report)
        if quiet:
            return seen
        seen = await _print_lines(api, seen)
        return await _wait_until(witness, seen, is_final, lambda *_: None)


def _writes(job: Json) -> bool:
    return phase_of(job) == RUNNING or is_final(job)


async def _print_lines(api: ApiCluster, job: Object) -> Object:
    """Returns the job as it was seen last. Of one without a pod that could be read, its end says why."""
    try:
        return await print_logs(api, Wanted(key_of(job)), not is_final(job), Printer(Format.TEXT))
    except Permanent as error:
        if error.reason not in ("NoLogs", "NoSuchJob"):
            raise
    return job


async def _wait_until(
    witness: Witness, job: Object, is_reached: Callable[[Object], bool], report: Report
) -> Object:
    """Look at a job until it is so; returns it as it is then.

    Raises:
        Permanent: it was deleted meanwhile, before its end.
    """
    seen = job
    while not is_reached(seen):
        report(waits_for(seen), _ready_share(seen))
        await asyncio.sleep(_POLL)
        with suppress(Retry):
            seen = await _again(witness, key_of(job))
    report(waits_for(seen), _ready_share(seen))
    return seen


async def _again(witness: Witness, key: Key) -> Object:
    if seen := await witness.look():
        return seen
    told = f"`paddlewheel events --job {key} --since 1d --no-follow` tells what happened to it"
    raise Permanent("JobDeleted", f"{key} was deleted while it was followed: {told}")


def waits_for(job: Json) -> str:
    """Phase, ready pods, and what keeps it."""
    status = status_of(job)
    if not status.get("phase"):
        return "waits for job-controller"
    why = ": ".join(str(status[name]) for name in ("reason", "message") if status.get(name))
    ready = f"{status['ready']} ready" if status.get("ready") else ""
    return ", ".join(part for part in (str(status["phase"]), ready, why) if part)


def _ready_share(job: Json) -> float:
    ready, _, wanted = str(status_of(job).get("ready") or "").partition("/")
    return int(ready) / int(wanted) if ready.isdecimal() and wanted.isdecimal() and int(wanted) else 0.0


def has_completed(job: Json) -> bool:
    """It has ended well."""
    return phase_of(job) == COMPLETED


def ending(job: Json) -> str:
    """How it has ended: `Completed after 3m20s; loss 0.000039`, `Failed after 5s: PodFailed: ...`."""
    status = parse_paddle_job_status(job)
    after = f" after {status.duration}" if status.duration else ""
    if not has_completed(job):
        why = ": ".join(part for part in (status.reason, status.message) if part)
        return f"{status.phase}{after}: {why}".removesuffix(": ")
    numbers = f"; {results(status)}" if status.results else ""
    return f"{status.phase}{after}{numbers}"
