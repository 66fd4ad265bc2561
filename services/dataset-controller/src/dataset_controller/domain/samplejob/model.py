"""SampleJob as values: spec, observed state, status."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.names import Cond, JobPhase
from dataset_controller.domain.samplejob.uses import Uses, uses_of
from dataset_controller.domain.sampleset.model import SampleSet
from dataset_controller.domain.secrets import SecretSeen
from dataset_controller.domain.status import ObjectStatus
from dataset_controller.domain.stored import Stored
from paddlewheel.contracts.crds import SampleJobSpec
from paddlewheel.contracts.generated.cache_v1 import RunState
from paddlewheel.contracts.objects import spec_of
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.operator.domain import plan as operator

_EXPLAINED_BY = (
    (Cond.COMPLETE, ""),
    (Cond.ACCEPTED, "False"),
    (Cond.RECONCILED, "False"),
    (Cond.OTHERS_CANCELLED, "False"),
    (Cond.STARTED, ""),
)
"""Conditions that `status.reason` is taken from, the most important first."""
_NOT_REQUESTED = frozenset({"priority", "terminate", "ttlSecondsAfterFinished"})
"""Of the spec: when the run begins and how long its job is kept, not what it does."""


@dataclass(frozen=True)
class JobStatus(ObjectStatus):
    """The status of the contract (B.7) plus progress; times are RFC 3339 UTC."""

    phase: JobPhase = JobPhase.NEW
    run_id: str = ""
    set_name: str = ""
    """Of the run in `run_id`, like `type`: the spec may be edited while it goes on."""
    set_uid: str = ""
    """Of that set: another may get its name."""
    type: str = ""
    request_digest: str = ""
    """`SampleJob.request_digest` when the run was requested; "" of one that an older release requested."""
    creation_version: str = ""
    """resourceVersion with which the job was first seen: the API server counts on with each write, and tells
    the time of a creation in whole seconds only."""
    progress: Mapping[str, Any] = field(default_factory=dict)
    cancels_since: str = ""
    """When a job with `spec.terminate` has begun to cancel what ran and waited then."""
    cancelled_runs: tuple[str, ...] = ()
    """Ids of the runs that it ends, until their job, or the set, knows of the end."""
    started: str = ""
    completed: str = ""

    def render(self) -> dict[str, Any]:
        """For `status` of the SampleJob."""
        optional = {
            "sampleSetName": self.set_name,
            "sampleSetUid": self.set_uid,
            "type": self.type,
            "requestDigest": self.request_digest,
            "creationVersion": self.creation_version,
            "cancellationTime": self.cancels_since,
            "cancelledRuns": list(self.cancelled_runs),
            "startTime": self.started,
            "completionTime": self.completed,
            "progress": dict(self.progress),
        }
        return {
            "phase": self.phase.value or JobPhase.PENDING.value,
            "jobName": self.run_id,
            **{name: value for name, value in optional.items() if value},
            **self._render_common(_EXPLAINED_BY),
        }


@dataclass(frozen=True, kw_only=True)
class SampleJob(Stored):
    """One SampleJob.

    Args:
        spec: empty, with a problem, when it cannot be parsed.
    """

    status: JobStatus
    spec: SampleJobSpec
    problem: Problem | None = None

    @property
    def created_at(self) -> str:
        """RFC 3339, by the API server's clock."""
        return str(self.obj["metadata"].get("creationTimestamp") or "")

    @property
    def seniority(self) -> tuple[str, int, str]:
        """The least is the oldest. Of jobs that were first seen by an older release, and were created in the
        same second, nobody knows which was first: they go by name."""
        version = self.status.creation_version
        return self.created_at, int(version) if version.isdecimal() else 0, self.key.name

    @cached_property
    def uses(self) -> Uses:
        """What its operation reads and changes of the set."""
        return uses_of(self.spec)

    @property
    def set_name(self) -> str:
        """Of the SampleSet in the job's namespace that it runs on, or is to; "" when none is named."""
        return self.status.set_name or self.wanted_set

    @property
    def wanted_set(self) -> str:
        """The set that the spec names now."""
        return self.spec.sample_set_ref.name if self.spec.sample_set_ref else ""

    @property
    def type(self) -> str:
        """Of its run, or of the one that it asks for."""
        return self.status.type or self.spec.type

    @property
    def is_other_work(self) -> bool:
        """The spec asks for another operation than that of the run, or for one on another set."""
        return (self.set_name, self.type) != (self.wanted_set, self.spec.type)

    @cached_property
    def request_digest(self) -> str:
        """Changes when the job's author asks for something else, and not with the set nor with defaults."""
        asked = {name: value for name, value in spec_of(self.obj).items() if name not in _NOT_REQUESTED}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    @property
    def is_edited_since_end(self) -> bool:
        """It asks for something else than its run did, by an edit that was made when that was over."""
        is_other = self.status.request_digest not in ("", self.request_digest)
        return is_other and self.ended_generation not in (None, self.generation)

    @property
    def ended_generation(self) -> int | None:
        """Of the spec when the run was over."""
        complete = self.status.condition(Cond.COMPLETE)
        return None if complete is None else complete.observed_generation


@dataclass(frozen=True)
class ObservedJob:
    """Everything one decision about a SampleJob is made from.

    Args:
        sample_set: the set it names, None when absent.
        secret: the Secret it names, None when absent or none is named.
        runs: states of all runs of that set by run id.
        recorded: the run in the status as the bus knows it; empty when it does not.
        progress_due: enough time has passed since progress was last written.
        others: the other jobs of that set, and those that the job is to run after, by name.
        are_records_known: False until `runs` has all that was on the bus when this service started.
        starting: names of others whose runs were just decided on, which their status does not say yet.
        service_age: seconds since this service started.
    """

    job: SampleJob
    sample_set: SampleSet | None = None
    secret: SecretSeen = None
    runs: Mapping[str, RunState] = field(default_factory=dict)
    recorded: tuple[RunKey, ...] = ()
    progress_due: bool = True
    others: Mapping[str, SampleJob] = field(default_factory=dict)
    are_records_known: bool = True
    starting: frozenset[str] = frozenset()
    service_age: float = math.inf

    @property
    def obj(self) -> dict[str, Any]:
        """The job as the API server gave it."""
        return dict(self.job.obj)

    @property
    def status(self) -> JobStatus:
        return self.job.status

    @property
    def state(self) -> RunState | None:
        """State of the run in the status."""
        return self.runs.get(self.status.run_id)


JobPlan = operator.Plan[JobStatus]
"""What to do about one SampleJob."""
