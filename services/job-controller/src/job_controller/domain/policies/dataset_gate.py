"""Whether the job's pods may be created: its data set must be ready the first time."""

from __future__ import annotations

from dataclasses import dataclass

from job_controller.domain import names
from job_controller.domain.model import JobSpec, JobStatus, SampleSet, SampleSetRef

_READY = "Ready"


@dataclass(frozen=True)
class Gate:
    """`reason` is CamelCase; `sample_set` is what is waited for, "" when nothing."""

    is_open: bool
    reason: str
    message: str = ""
    sample_set: str = ""


def needs_sample_set(spec: JobSpec, status: JobStatus, pods: int) -> bool:
    """True when the next decision depends on the data set: pods are still to be created."""
    return spec.sample_set is not None and not status.final and pods < len(spec.pod_ids())


def decide_gate(spec: JobSpec, status: JobStatus, pods: int, sample_set: SampleSet | None) -> Gate:
    """Open for ever once the job was let in, so that a degraded set stops no running job."""
    ref = spec.sample_set
    if ref is None:
        return Gate(True, "NothingToWaitFor")
    if status.condition(names.CONDITION_ADMITTED) == "True" or pods > 0:
        return Gate(True, "SampleSetReady")
    if sample_set is None:
        message = f"SampleSet {_address(ref)} does not exist; create it or correct spec.sampleSetRef.name"
        return Gate(False, "SampleSetNotFound", message, ref.name)
    if sample_set.phase != _READY:
        message = f"pods are created when SampleSet {_address(ref)} is Ready"
        return Gate(False, "SampleSetNotReady", message, ref.name)
    return Gate(True, "SampleSetReady")


def _address(ref: SampleSetRef) -> str:
    return f"{ref.namespace}/{ref.name}"
