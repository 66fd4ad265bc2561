"""`spec.after`: a job runs when the jobs that it names have succeeded, and fails when one never will."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.names import Cond, JobPhase
from dataset_controller.domain.samplejob.model import ObservedJob, SampleJob
from dataset_controller.timing import DEPENDENCY_GRACE_SECONDS
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import age


@dataclass(frozen=True)
class Wait:
    """What a job waits for. `message` is empty when it waits for nothing.

    Args:
        is_in_vain: it will never come.
        wake_after: when to look again, None while only a change of another job matters.
    """

    message: str = ""
    is_in_vain: bool = False
    wake_after: float | None = None


def check_after(job: SampleJob, others: Mapping[str, SampleJob]) -> None:
    """Raises Invalid: a job of another set is named, or jobs wait for each other."""
    for index, name in enumerate(job.spec.after):
        other = others.get(name)
        if other is not None and other.set_name != job.set_name:
            raise Invalid(
                Reason.INVALID_SPEC,
                f"spec.after[{index}]: SampleJob {name} works on SampleSet {other.set_name};"
                f" name jobs of SampleSet {job.set_name}",
            )
    if circle := _circle(job, others):
        steps = " after ".join([job.key.name, *circle])
        raise Invalid(Reason.INVALID_SPEC, f"spec.after: {steps}, so none ever runs; leave one of them out")


def decide_dependencies(seen: ObservedJob, now: datetime) -> Wait:
    """Whether the job may run, waits, or never will run."""
    waits, wake_after = [], None
    left = DEPENDENCY_GRACE_SECONDS - age(seen.job.created_at, now)
    for name in seen.job.spec.after:
        other = seen.others.get(name)
        if other is None and left <= 0:
            return _in_vain(f"SampleJob {name} of spec.after does not exist; create it first")
        if other is None:
            waits.append(f"SampleJob {name}, which does not exist yet")
            wake_after = left
        elif why := _never_succeeds(other):
            return _in_vain(f"SampleJob {name} of spec.after {why}; let it succeed first")
        elif other.status.phase is not JobPhase.SUCCEEDED:
            waits.append(f"SampleJob {name}")
    return Wait(f"waits for {', '.join(waits)}", wake_after=wake_after) if waits else Wait()


def is_awaited(job: SampleJob, others: Iterable[SampleJob]) -> bool:
    """Another one that has not begun yet runs after it."""
    return any(_waits(other) and job.key.name in other.spec.after for other in others)


def awaited_by(job: SampleJob, others: Mapping[str, SampleJob]) -> frozenset[str]:
    """Names of the jobs that it is to run after, of those that they are to run after, and so on."""
    found, left = set[str](), list(job.spec.after)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += others[name].spec.after if name in others else ()
    return frozenset(found)


def _in_vain(why: str) -> Wait:
    return Wait(f"{why}, then create this one anew or edit its spec.after", is_in_vain=True)


def _never_succeeds(other: SampleJob) -> str:
    """Why, "" when it still may, or has."""
    if other.status.phase is JobPhase.FAILED:
        complete = other.status.condition(Cond.COMPLETE)
        return f"has failed ({complete.reason})" if complete else "has failed"
    if other.deleted_at and other.status.phase is not JobPhase.SUCCEEDED:
        return "is being deleted"
    return ""


def _waits(job: SampleJob) -> bool:
    """It has not begun: until then `spec.after` matters."""
    return job.status.phase is JobPhase.NEW and not job.deleted_at


def _circle(job: SampleJob, others: Mapping[str, SampleJob]) -> list[str]:
    """Names of waiting jobs from one that the job is after to the job itself; empty when there are none."""
    paths, known = [[name] for name in job.spec.after], set[str]()
    while paths:
        path = paths.pop()
        name = path[-1]
        if name == job.key.name:
            return path
        other = others.get(name)
        if name in known or other is None or not _waits(other):
            continue
        known.add(name)
        paths += [[*path, after] for after in other.spec.after]
    return []
