"""What a SampleJob asks for, checked against its set and Secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.names import Reason, SetPhase
from dataset_controller.domain.objects import Object, spec_of, status_of
from dataset_controller.domain.operations import (
    Options,
    clear_operation,
    plain_operation,
    remove_operation,
    sync_operation,
    warmup_operation,
)
from dataset_controller.domain.runs import digest, job_prefix, run_id
from dataset_controller.domain.samplejob.credentials import job_keys, job_source
from dataset_controller.domain.samplejob.model import ObservedJob
from dataset_controller.domain.sampleset.spec import SetSpec, read_spec
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds.operations import WORDS, Operation, operation_for_word
from paddlewheel.contracts.generated.cache_v1 import SyncOperation

_MOUNTED = frozenset(
    {SetPhase.MOUNT, SetPhase.SYNCING, SetPhase.SYNC_FAILED, SetPhase.PARTIAL_READY, SetPhase.READY}
)
_READY = frozenset({SetPhase.PARTIAL_READY, SetPhase.READY})


@dataclass(frozen=True)
class Request:
    """A validated request. `operation` holds the user's options only, not the names of files with keys."""

    operation: WireModel
    partitions: int
    has_keys: bool

    def run_id(self, job_uid: str, attempt: int) -> str:
        """The id of the run; other options or another attempt give another one."""
        return run_id(job_uid, str(attempt), digest(self.operation))

    def for_run(self, run: str) -> WireModel:
        """The operation as it goes onto the bus: it names the files that hold the keys, never the keys."""
        if not self.has_keys or not isinstance(self.operation, SyncOperation):
            return self.operation
        return self.operation.model_copy(update={"secret": job_prefix(run)})


def read_request(seen: ObservedJob) -> Request:
    """Check the job.

    Raises:
        Invalid: names the field and the remedy; `ErrorSampleSetNotExist` while there is no such set.
    """
    if seen.type not in WORDS:
        raise Invalid(
            Reason.JOB_TYPE_NOT_SUPPORTED, f"spec.type: {seen.type!r} is not one of {', '.join(WORDS)}"
        )
    if not seen.set_name:
        raise Invalid(Reason.SET_NOT_EXIST, "spec.sampleSetRef.name: name a SampleSet in this namespace")
    if seen.sample_set is None:
        raise Invalid(
            Reason.SET_NOT_EXIST,
            f"SampleSet {seen.key.namespace}/{seen.set_name} does not exist; create it or fix sampleSetRef",
        )
    return _request(seen, _readable(seen.sample_set))


def _readable(sample_set: Object) -> SetSpec:
    try:
        return read_spec(sample_set)
    except Invalid as problem:
        raise Invalid(problem.reason, f"the SampleSet's {problem.message}") from problem


@dataclass(frozen=True)
class BuildInput:
    """What an operation is built from. `field` is the path of its options."""

    seen: ObservedJob
    spec: SetSpec
    options: Options
    field: str


def _sync(given: BuildInput) -> WireModel:
    source = job_source(given.seen.obj) or given.spec.source
    if source is None:
        raise Invalid(Reason.SOURCE_INVALID, f"{given.field}.source: name a source; the SampleSet has none")
    return sync_operation(given.options, source.uri, given.field)


BUILDERS: Mapping[str, Callable[[BuildInput], WireModel]] = {
    "sync": _sync,
    "warmup": lambda given: warmup_operation(given.options, given.field),
    "rmr": lambda given: remove_operation(given.options, given.field),
    "clear": lambda given: clear_operation(given.options, given.spec.cache.directories, given.field),
}
"""By `spec.type`; an operation without a builder takes its options as they are."""


def _request(seen: ObservedJob, spec: SetSpec) -> Request:
    row = operation_for_word(seen.type)
    options = spec_of(seen.obj).get(row.options_field) or {}
    operation = build(row, BuildInput(seen, spec, options, f"spec.{row.options_field}"))
    has_keys = isinstance(operation, SyncOperation) and bool(job_keys(seen.obj, seen.secret))
    return Request(operation, spec.partitions if row.needs_ready else _mounted(seen, spec), has_keys)


def build(row: Operation, given: BuildInput) -> WireModel:
    """The operation as it goes onto the bus. Raises Invalid."""
    if row.word in BUILDERS:
        return BUILDERS[row.word](given)
    return plain_operation(row, given.options)


def _mounted(seen: ObservedJob, spec: SetSpec) -> int:
    """Partitions that can take part now; a sync does not wait for nodes that are not there."""
    runtime = status_of(seen.sample_set or {}).get("runtimeStatus") or {}
    return min(spec.partitions, max(1, int(runtime.get("readyReplicas") or 0)))


def is_set_prepared(seen: ObservedJob) -> bool:
    """The set's runtime can take the work."""
    if seen.sample_set is None:
        return False
    phase = str(status_of(seen.sample_set).get("phase") or "")
    return phase in (_READY if operation_for_word(seen.type).needs_ready else _MOUNTED)
