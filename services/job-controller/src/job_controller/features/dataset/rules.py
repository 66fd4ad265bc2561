"""Whether the job's pods may be created: its data set must be ready the first time."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.gate import Gate
from job_controller.core.model import Observed
from job_controller.core.parts import SampleSet
from job_controller.core.phase import missing_pods
from job_controller.features.dataset.mounts import is_nowhere
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import shorten

_FAILED = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.SECRET_NOT_FOUND,
        Reason.INVALID_SECRET,
        Reason.INVALID_SOURCE,
        Reason.SECRET_NOT_SHARED,
        Reason.NAMESPACE_NOT_SERVED,
        Reason.SOURCE_NOT_ALLOWED,
        Reason.CACHE_PATH_NOT_ALLOWED,
        Reason.UNKNOWN_ENGINE,
        Reason.SYNC_FAILED,
    }
)
"""Reasons of a SampleSet that only its user can remove."""


def needs_sample_set(seen: Observed) -> bool:
    """True when the next decision depends on the data set: pods are still to be created."""
    job = seen.job
    return job.sample_set is not None and not job.status.final and bool(missing_pods(seen))


def _not_ready(ref: Key, sample_set: SampleSet) -> str:
    state = ": ".join(filter(None, (sample_set.phase, sample_set.message)))
    message = f"pods are created when SampleSet {ref} is Ready"
    return shorten(f"{message}; it is {state}" if state else message)


def _not_mounted(ref: Key, sample_set: SampleSet) -> str:
    node, lost = next(iter(sample_set.lost_mounts.items()))
    message = f"pods are created when a node has SampleSet {ref} mounted again"
    return shorten(f"{message}; node {node}: {lost.message}" if lost.message else message)


def decide_gate(seen: Observed) -> Gate:
    """Open forever once the job was admitted, so that a degraded data set stops no running job; only a new
    epoch waits while no node has the data at all."""
    ref = seen.job.sample_set
    if ref is None:
        return Gate(True, Reason.NOTHING_TO_WAIT_FOR)
    is_begun = seen.job.status.epoch > 0 and not seen.pods
    if is_begun and seen.sample_set is not None and is_nowhere(seen.sample_set):
        return Gate(False, Reason.SAMPLE_SET_NOT_MOUNTED, _not_mounted(ref, seen.sample_set))
    if seen.job.status.condition(names.CONDITION_ADMITTED) == "True" or seen.pods:
        return Gate(True, Reason.SAMPLE_SET_READY)
    if seen.trouble is not None and seen.trouble.kind == names.SAMPLE_SET:
        message = f"SampleSet {ref} cannot be read: {seen.trouble.message}"
        return Gate(False, Reason.SAMPLE_SET_UNREADABLE, message)
    if seen.sample_set is None:
        message = f"SampleSet {ref} does not exist; create it or correct spec.sampleSetRef.name"
        return Gate(False, Reason.SAMPLE_SET_NOT_FOUND, message)
    if not seen.sample_set.is_ready:
        has_failed = seen.sample_set.reason in _FAILED
        reason = Reason.SAMPLE_SET_FAILED if has_failed else Reason.SAMPLE_SET_NOT_READY
        return Gate(False, reason, _not_ready(ref, seen.sample_set))
    return Gate(True, Reason.SAMPLE_SET_READY)
