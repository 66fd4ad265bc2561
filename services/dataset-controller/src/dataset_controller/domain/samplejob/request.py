"""What a SampleJob asks for, checked against its set and Secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dataset_controller.domain.invalid import Invalid, Problem
from dataset_controller.domain.names import SetPhase
from dataset_controller.domain.operations import (
    clear_operation,
    plain_operation,
    remove_operation,
    sync_operation,
    warmup_operation,
)
from dataset_controller.domain.runs import digest, job_prefix, run_id
from dataset_controller.domain.samplejob.credentials import job_keys, job_source
from dataset_controller.domain.samplejob.model import ObservedJob, SampleJob
from dataset_controller.domain.samplejob.policies.dependencies import check_after
from dataset_controller.domain.sampleset.model import SampleSet, SetSpec
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds import ClearOptions, RmrOptions, SyncOptions, WarmupOptions
from paddlewheel.contracts.crds.base import CrdModel
from paddlewheel.contracts.crds.operations import WORDS, Operation, operation_for_word
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.contracts.reasons import Reason

_MOUNTED = frozenset(
    {SetPhase.MOUNT, SetPhase.SYNCING, SetPhase.SYNC_FAILED, SetPhase.PARTIAL_READY, SetPhase.READY}
)
_READY = frozenset({SetPhase.PARTIAL_READY, SetPhase.READY})


@dataclass(frozen=True)
class Request:
    """A checked request. `operation` contains the user's options only, not the names of files with keys."""

    operation: WireModel
    partitions: int
    has_keys: bool
    after: tuple[str, ...] = ()

    def run_id(self, job_uid: str, attempt: int) -> str:
        """The id of the run; other options, another `spec.after` or another attempt give another one."""
        return run_id(job_uid, str(attempt), digest(self.operation), *self.after)

    def for_run(self, run: str) -> WireModel:
        """The operation as it goes onto the bus: it names the files that contain the keys, never the keys."""
        if not self.has_keys or not isinstance(self.operation, SyncOperation):
            return self.operation
        return self.operation.model_copy(update={"secret": job_prefix(run)})


def read_request(seen: ObservedJob) -> Request:
    """Check the job.

    Raises:
        Invalid: names the field and the remedy; `SampleSetNotFound` while there is no such set.
    """
    job = seen.job
    _raise(job.problem)
    if job.spec.type not in WORDS:
        raise Invalid(
            Reason.UNKNOWN_OPERATION, f"spec.type: {job.spec.type!r} is not one of {', '.join(WORDS)}"
        )
    if not job.set_name:
        raise Invalid(
            Reason.SAMPLE_SET_NOT_FOUND, "spec.sampleSetRef.name: name a SampleSet in this namespace"
        )
    if seen.sample_set is None:
        raise Invalid(
            Reason.SAMPLE_SET_NOT_FOUND,
            f"SampleSet {job.key.namespace}/{job.set_name} does not exist; create it or correct sampleSetRef",
        )
    check_after(job, seen.others)
    return _request(seen, seen.sample_set)


def _request(seen: ObservedJob, sample_set: SampleSet) -> Request:
    spec, row = _spec_of(sample_set), operation_for_word(seen.job.spec.type)
    operation = build(row, Given(seen.job, spec, f"spec.{row.options_field}"))
    has_keys = isinstance(operation, SyncOperation) and bool(job_keys(seen.job, seen.secret))
    return Request(operation, spec.partitions, has_keys, seen.job.spec.after)


def _spec_of(sample_set: SampleSet) -> SetSpec:
    problem = sample_set.problem
    _raise(problem and Problem(problem.reason, f"the SampleSet's {problem.message}"))
    assert sample_set.spec is not None
    return sample_set.spec


def _raise(problem: Problem | None) -> None:
    if problem is not None:
        raise Invalid(problem.reason, problem.message)


@dataclass(frozen=True)
class Given:
    """What an operation is built from. `field` is the path of its options."""

    job: SampleJob
    spec: SetSpec
    field: str


def _sync(given: Given) -> WireModel:
    source = job_source(given.job) or given.spec.source
    if source is None:
        raise Invalid(Reason.INVALID_SOURCE, f"{given.field}.source: name a source; the SampleSet has none")
    options = given.job.spec.sync_options or SyncOptions()
    if options.delete_src and source.uri.startswith("file:"):
        raise Invalid(
            Reason.INVALID_SPEC,
            f"{given.field}.delete-src: a file:// source is read-only; leave delete-src out",
        )
    return sync_operation(options, source.uri, given.field)


def _warmup(given: Given) -> WireModel:
    return warmup_operation(given.job.spec.warmup_options or WarmupOptions(), given.field)


def _remove(given: Given) -> WireModel:
    return remove_operation(given.job.spec.rmr_options or RmrOptions(), given.field)


def _clear(given: Given) -> WireModel:
    options = given.job.spec.clear_options or ClearOptions()
    return clear_operation(options, given.spec.cache.directories, given.field)


BUILDERS: Mapping[str, Callable[[Given], WireModel]] = {
    "sync": _sync,
    "warmup": _warmup,
    "rmr": _remove,
    "clear": _clear,
}
"""By `spec.type`; an operation without a builder takes its options as they are."""


def build(row: Operation, given: Given) -> WireModel:
    """The operation as it goes onto the bus. Raises Invalid."""
    if row.word in BUILDERS:
        return BUILDERS[row.word](given)
    options: CrdModel | None = getattr(given.job.spec, f"{row.word}_options")
    return plain_operation(row, options or row.options())


def is_prepared_for(sample_set: SampleSet | None, type_: str) -> bool:
    """The set's runtime can take an operation of this type, which is a known one. One that is being deleted
    takes nothing new."""
    if sample_set is None or sample_set.deleted_at:
        return False
    needed = _READY if operation_for_word(type_).needs_ready else _MOUNTED
    return sample_set.status.phase in needed
