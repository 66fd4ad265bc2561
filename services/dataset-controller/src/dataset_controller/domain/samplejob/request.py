"""What a SampleJob asks for, checked against its set and Secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.names import Reason, SetPhase
from dataset_controller.domain.objects import Object, spec_of, status_of
from dataset_controller.domain.operations import (
    Operation,
    clear_operation,
    remove_operation,
    sync_operation,
    warmup_operation,
)
from dataset_controller.domain.runs import digest, job_prefix, run_id
from dataset_controller.domain.samplejob.credentials import job_keys, job_source
from dataset_controller.domain.samplejob.model import ObservedJob
from dataset_controller.domain.sampleset.spec import SetSpec, read_spec
from paddlewheel.contracts.generated.cache_v1 import SyncOperation

WORDS = {"sync": "SyncJob", "warmup": "WarmupJob", "rmr": "RmrJob", "clear": "ClearJob"}
"""How events name the types."""

_MOUNTED = frozenset(
    {SetPhase.MOUNT, SetPhase.SYNCING, SetPhase.SYNC_FAILED, SetPhase.PARTIAL_READY, SetPhase.READY}
)
_SERVING = frozenset({SetPhase.PARTIAL_READY, SetPhase.READY})
NEEDED_PHASES = {"sync": _MOUNTED, "rmr": _MOUNTED, "warmup": _SERVING, "clear": _SERVING}


@dataclass(frozen=True)
class Request:
    """A checked wish. `operation` does not name its keys' files: it tells only the user's options."""

    operation: Operation
    partitions: int
    has_keys: bool

    def run_id(self, job_uid: str, attempt: int) -> str:
        """The id of this wish's run; other options or another attempt give another one."""
        return run_id(job_uid, str(attempt), digest(self.operation))

    def for_run(self, run: str) -> Operation:
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
            f"SampleSet {seen.key.namespace}/{seen.set_name} does not exist; create it or mend sampleSetRef",
        )
    return _request(seen, _readable(seen.sample_set))


def _readable(sample_set: Object) -> SetSpec:
    try:
        return read_spec(sample_set)
    except Invalid as problem:
        raise Invalid(problem.reason, f"the SampleSet's {problem.message}") from problem


def _request(seen: ObservedJob, spec: SetSpec) -> Request:
    options: Mapping[str, Any] = spec_of(seen.obj).get(f"{seen.type}Options") or {}
    where = f"spec.{seen.type}Options"
    match seen.type:
        case "sync":
            return _sync(seen, spec, options, where)
        case "warmup":
            return Request(warmup_operation(options, where), spec.partitions, False)
        case "rmr":
            return Request(remove_operation(options, where), _mounted(seen, spec), False)
    return Request(clear_operation(options, spec.cache.directories, where), spec.partitions, False)


def _sync(seen: ObservedJob, spec: SetSpec, options: Mapping[str, Any], where: str) -> Request:
    source = job_source(seen.obj) or spec.source
    if source is None:
        raise Invalid(Reason.SOURCE_INVALID, f"{where}.source: name a source; the SampleSet has none")
    has_keys = bool(job_keys(seen.obj, seen.secret))
    return Request(sync_operation(options, source.uri, where), _mounted(seen, spec), has_keys)


def _mounted(seen: ObservedJob, spec: SetSpec) -> int:
    """Partitions that can take part now; a sync does not wait for nodes that are not there."""
    runtime = status_of(seen.sample_set or {}).get("runtimeStatus") or {}
    return min(spec.partitions, max(1, int(runtime.get("readyReplicas") or 0)))


def is_set_prepared(seen: ObservedJob) -> bool:
    """The set's runtime can take the work."""
    if seen.sample_set is None:
        return False
    phase = str(status_of(seen.sample_set).get("phase") or "")
    return phase in NEEDED_PHASES[seen.type]
