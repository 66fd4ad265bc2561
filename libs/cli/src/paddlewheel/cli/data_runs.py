"""Starts and follows the operations of `paddlewheel data`: SampleJobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from paddlewheel.cli.names import RANDOM, random_end
from paddlewheel.cli.object_watch import STATUS_INTERVAL_SECONDS, ObjectWatch, watched
from paddlewheel.cli.output import amount
from paddlewheel.cli.progress import Report
from paddlewheel.contracts.crds import SampleJobStatus
from paddlewheel.contracts.crds.parse import parse_sample_job_status, parse_sample_set_spec
from paddlewheel.contracts.crds.samplejob import JOB_NAME_LENGTH
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import key_of, spec_of
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube.ports import SAMPLE_JOBS, Object, WatchedCluster

SUCCEEDED, FAILED = "Succeeded", "Failed"


def terms(after: list[str] | None, priority: int, ttl: int | None) -> dict[str, Any]:
    """The fields of the spec of a SampleJob that every operation has, if they are given."""
    given = {"after": after or None, "priority": priority or None, "ttlSecondsAfterFinished": ttl}
    return {name: value for name, value in given.items() if value is not None}


def manifest(
    sample_set: Object,
    type_: str,
    options: Mapping[str, Any],
    terms: Mapping[str, Any] = MappingProxyType({}),
    *,
    secret: str = "",
) -> Object:
    """A SampleJob on the set.

    Args:
        options: the options of the operation; defaults are left out.
        terms: see `terms`.
        secret: Secret with the credentials of the source of a sync; "" for the Secret of the set.
    """
    key = key_of(sample_set)
    spec: dict[str, Any] = {"type": type_, "sampleSetRef": {"name": key.name}, **terms}
    if given := {name: value for name, value in options.items() if value not in (None, "", 0, False, [])}:
        spec[f"{type_}Options"] = given
    if type_ == "sync":
        spec["secretRef"] = {"name": secret} if secret else _secret_of(sample_set)
    return {
        "apiVersion": SAMPLE_JOBS.api_version,
        "kind": SAMPLE_JOBS.kind,
        "metadata": {"namespace": key.namespace, "name": _generated_name(key.name, type_)},
        "spec": spec,
    }


def _secret_of(sample_set: Object) -> dict[str, str]:
    spec = parse_sample_set_spec(sample_set)
    ref = (spec.source.secret_ref if spec.source else None) or spec.secret_ref
    if ref is None:
        raise Permanent("NoSecret", f"{key_of(sample_set)} names no Secret: name one with --secret")
    return {"name": ref.name, **({"namespace": ref.namespace} if ref.namespace else {})}


def _generated_name(sample_set: str, type_: str) -> str:
    kept = f"{sample_set}-{type_}"[: JOB_NAME_LENGTH - RANDOM - 1].rstrip("-.")
    return f"{kept}-{random_end()}"


def runs_of(sample_set: Object, runs: list[Object]) -> list[Object]:
    """The runs of the set, newest first."""
    name = key_of(sample_set).name
    own = [run for run in runs if (spec_of(run).get("sampleSetRef") or {}).get("name") == name]
    return sorted(own, key=lambda run: str(run["metadata"].get("creationTimestamp", "")), reverse=True)


def is_final(run: Object) -> bool:
    """True when the run has ended. A failed run starts again only when its options are changed."""
    return parse_sample_job_status(run).phase in (SUCCEEDED, FAILED)


async def follow(api: WatchedCluster, run: Object, report: Report) -> Object:
    """Follow a run until it has ended, and return it. An API server that does not answer is waited for.

    Raises:
        Permanent: the run was deleted, and how it ended is unknown.
    """
    seen, trouble = run, ""
    async with watched(api, SAMPLE_JOBS, run, is_final) as watch:
        while not is_final(seen):
            status = parse_sample_job_status(seen)
            report(f"{state(status)}{trouble}", _share(status))
            await asyncio.sleep(STATUS_INTERVAL_SECONDS)
            try:
                seen, trouble = await _again(watch, key_of(run)), ""
            except Retry as error:
                trouble = f"; the API server does not answer: {error.reason}"
    return seen


async def _again(watch: ObjectWatch, key: Key) -> Object:
    if seen := await watch.look():
        return seen
    if watch.is_interrupted:
        raise Permanent(
            "RunDeleted", f"{key} was deleted while this command followed it, which cancelled the run"
        )
    advice = f"`paddlewheel events --sample-job {key} --since 1d --no-follow` shows what happened to it"
    raise Permanent(
        "RunDeleted",
        f"{key} was deleted, and how it ended is unknown; {advice}",
    )


def state(status: SampleJobStatus) -> str:
    """The state in one line: `Running, 120 of 340 files, 1.2 GiB of 3.0 GiB, about 3 min left`."""
    if not status.phase:
        return "waiting for dataset-controller"
    if status.phase == "Running" and status.progress is not None:
        return ", ".join([status.phase, *_counts(status)])
    why = ": ".join(part for part in (status.reason, status.message) if part)
    return ", ".join(part for part in (status.phase, why) if part)


def _counts(status: SampleJobStatus) -> Iterator[str]:
    done = status.progress
    if done is None:
        return
    more = "" if done.listed else " so far"
    yield f"{done.files_done:,} of {done.files_total:,} files{more}"
    if done.bytes_total:
        yield f"{amount(done.bytes_done)} of {amount(done.bytes_total)}{more}"
    if done.eta_seconds:
        yield f"about {rounded_time(done.eta_seconds)} left"
    if done.files_failed:
        yield f"{done.files_failed:,} failed"


def rounded_time(seconds: int) -> str:
    """For example `40 s`, `12 min` or `3 h 20 min`: an estimate is not more exact than that."""
    if seconds < 60:
        return f"{seconds} s"
    hours, minutes = divmod(-(-seconds // 60), 60)
    return " ".join(part for part in (f"{hours} h" * bool(hours), f"{minutes} min" * bool(minutes)) if part)


def _share(status: SampleJobStatus) -> float:
    done = status.progress
    if done is None or not done.listed:
        return 0.0
    amounts = ((done.bytes_done, done.bytes_total), (done.files_done, done.files_total))
    return min((part / whole for part, whole in amounts if whole), default=0.0)


def ending(run: Object) -> str:
    """How a run ended, for example `Succeeded: 1,797 files, 2.1 MiB`."""
    status = parse_sample_job_status(run)
    if status.phase != SUCCEEDED:
        return ": ".join(part for part in (status.phase, status.reason, status.message) if part)
    done = status.progress
    figures = f": {done.files_done:,} files, {amount(done.bytes_done)}" if done and done.files_done else ""
    return f"{status.phase}{figures}{f'; {status.message}' if status.message else ''}"
