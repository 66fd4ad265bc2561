"""SampleJob as values: what was observed, what the status says, what a plan asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dataset_controller.domain.journal import Journal, parse_journal
from dataset_controller.domain.names import JobPhase
from dataset_controller.domain.objects import Object, generation_of, key_of, spec_of, status_of, uid_of
from dataset_controller.domain.outcome import Plan
from paddlewheel.contracts.generated.cache_v1 import RunState
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import RunKey


@dataclass(frozen=True)
class ObservedJob:
    """One SampleJob and everything its plan depends on.

    Args:
        sample_set: the set it names, None when absent.
        secret: the Secret it names, None when absent or none is named.
        runs: states of all runs of that set by run id.
        recorded: set-uid of the run in the status, as the bus knows it ("" = unknown there).
        progress_due: enough time has passed since progress was last written.
    """

    obj: Object
    sample_set: Object | None = None
    secret: Object | None = None
    runs: Mapping[str, RunState] = field(default_factory=dict)
    recorded: tuple[RunKey, ...] = ()
    progress_due: bool = True

    @property
    def key(self) -> Key:
        return key_of(self.obj)

    @property
    def uid(self) -> str:
        return uid_of(self.obj)

    @property
    def type(self) -> str:
        return str(spec_of(self.obj).get("type") or "")

    @property
    def set_name(self) -> str:
        return str((spec_of(self.obj).get("sampleSetRef") or {}).get("name") or "")

    @property
    def status(self) -> JobStatus:
        return parse_status(self.obj)

    @property
    def state(self) -> RunState | None:
        """State of the run in the status."""
        return self.runs.get(self.status.run_id)


@dataclass(frozen=True)
class JobStatus:
    """The status of the contract (B.7) plus progress and the journal."""

    phase: JobPhase = JobPhase.NEW
    run_id: str = ""
    progress: Mapping[str, Any] = field(default_factory=dict)
    started: str = ""
    completed: str = ""
    journal: Journal = field(default_factory=Journal)

    def with_journal(self, journal: Journal) -> JobStatus:
        """The same with another journal."""
        return replace(self, journal=journal)

    def render(self) -> dict[str, Any]:
        """For the API server."""
        optional = {
            "startTime": self.started,
            "completionTime": self.completed,
            "progress": dict(self.progress),
        }
        return {
            "phase": self.phase.value,
            "jobName": self.run_id,
            **{name: value for name, value in optional.items() if value},
            **self.journal.render(),
        }


def parse_status(obj: Object) -> JobStatus:
    """Read `status`; an unknown phase starts the path anew."""
    raw = status_of(obj)
    phase = str(raw.get("phase") or "")
    return JobStatus(
        JobPhase(phase) if phase in set(JobPhase) else JobPhase.NEW,
        str(raw.get("jobName") or ""),
        dict(raw.get("progress") or {}),
        str(raw.get("startTime") or ""),
        str(raw.get("completionTime") or ""),
        parse_journal(raw, generation_of(obj)),
    )


def progress_of(state: RunState) -> dict[str, Any]:
    """`status.progress`, exact to the acknowledged chunk."""
    return {
        "filesDone": state.files_done,
        "filesTotal": state.files_total,
        "bytesDone": state.bytes_done,
        "bytesTotal": state.bytes_total,
        "cachedPercent": round(state.cached_percent, 2),
        "listed": state.listed,
    }


JobPlan = Plan[JobStatus]
"""What to do about one SampleJob."""
