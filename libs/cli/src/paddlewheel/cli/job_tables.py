"""Tables of `paddlewheel job`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from paddlewheel.cli.job_changes import Json
from paddlewheel.cli.objects import age_of, conditions
from paddlewheel.cli.table import Table, properties
from paddlewheel.contracts.announcements import Announcements
from paddlewheel.contracts.crds import JobProgress, PaddleJobSpec, PaddleJobStatus
from paddlewheel.contracts.crds.paddlejob import GangStatus
from paddlewheel.contracts.crds.parse import parse_paddle_job_spec, parse_paddle_job_status
from paddlewheel.contracts.objects import key_of

_FACTS = 10
"""Number of facts that are shown."""


def jobs(found: Sequence[Json], now: datetime) -> Table:
    """A row for each job."""
    table = Table(
        ("job", "phase", "mode", "ready", "reason", "restarts", "epoch", "age"),
        drops=("epoch", "mode", "restarts", "age", "ready", "reason"),
        states={"phase"},
        right={"restarts", "epoch"},
    )
    for job in found:
        status = parse_paddle_job_status(job)
        table.add_row(
            str(key_of(job)), status.phase, status.mode, status.ready, status.reason,
            str(sum(status.restarts.values())), str(status.epoch), age_of(job, now),
        )  # fmt: skip
    return table


def job(found: Json, now: datetime) -> Iterator[Table | str]:
    """Everything about one job."""
    spec, status = parse_paddle_job_spec(found), parse_paddle_job_status(found)
    yield properties(str(key_of(found)), _about(found, spec, status, now), states={"phase"})
    yield conditions(status.conditions)
    yield _roles(spec, status)
    if status.restarts:
        yield _restarts(status)
    if last := status.last_restart:
        yield f"last restart: {last.time} {last.reason}: {last.message}"
    if status.results:
        yield f"results: {results(status)}"
    if status.announcements:
        yield _facts(status.announcements)


def _about(found: Json, spec: PaddleJobSpec, status: PaddleJobStatus, now: datetime) -> dict[str, str]:
    data, world = spec.sample_set_ref, status.world
    return {
        "phase": status.phase or "not processed by job-controller yet",
        "reason": status.reason,
        "message": status.message,
        "suspended": "yes" if spec.suspend else "",
        "mode": status.mode,
        "ready": status.ready,
        "has room for": f"{world.workers} of {world.of} workers" if world else "",
        "progress": _progress(status.progress) if status.progress else "",
        "scheduled by": _gang(status.gang) if status.gang else "",
        "network": spec.network,
        "data set": f"{data.name} at {data.mount_path}" if data else "",
        "checkpoints": spec.checkpoint_path,
        "age": age_of(found, now),
        "started": status.start_time or "",
        "ended": status.completion_time or "",
        "duration": status.duration,
        "epoch": str(status.epoch),
    }


def _progress(progress: JobProgress) -> str:
    """The progress in one line: `24%, step 120 of 500, loss 0.25, done about 2026-01-02T01:00:00Z`."""
    counts = (
        ("step", progress.step, progress.total_steps),
        ("epoch", progress.epoch, progress.total_epochs),
    )
    parts = [f"{name} {n}" + (f" of {total}" if total else "") for name, n, total in counts if n is not None]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:g}")
    if progress.samples_per_second is not None:
        parts.append(f"{progress.samples_per_second:g} samples/s")
    if progress.eta:
        parts.append(f"done about {progress.eta}")
    return ", ".join([progress.percent, *parts] if progress.percent else parts)


def _gang(gang: GangStatus) -> str:
    """The gang in one line: `Volcano, PodGroup sine of 2 pods, Inqueue: <message>`."""
    group = f"PodGroup {gang.pod_group} of {gang.min_available} pods" if gang.pod_group else ""
    state = ", ".join(part for part in (gang.kind, group, gang.phase) if part)
    return f"{state}: {gang.message}" if gang.message else state


def _roles(spec: PaddleJobSpec, status: PaddleJobStatus) -> Table:
    counted = ("wanted", "pending", "starting", "running", "succeeded", "failed")
    table = Table(("role", *counted), right=set(counted))
    for name, role in spec.roles.items():
        seen = status.roles.get(name)
        counts = (seen.pending, seen.starting, seen.running, seen.succeeded, seen.failed) if seen else ()
        cells = [str(count) for count in counts] or [""] * (len(counted) - 1)
        table.add_row(name, str(role.replicas), *cells)
    return table


def _restarts(status: PaddleJobStatus) -> Table:
    table = Table(("restarts because of", "times"), right={"times"})
    for cause, times in sorted(status.restarts.items()):
        table.add_row(cause, str(times))
    return table


def results(status: PaddleJobStatus) -> str:
    """The last metrics in one line: `loss 0.000039, epochs 2000`."""
    return ", ".join(f"{name} {value:g}" for name, value in status.results.items())


def _facts(announcements: Announcements) -> Table:
    table = Table(("fact", "at", "published"))
    for item in sorted(announcements, key=lambda item: item.at)[-_FACTS:]:
        table.add_row(item.fact, item.at, "yes" if item.announced else "not confirmed")
    return table
