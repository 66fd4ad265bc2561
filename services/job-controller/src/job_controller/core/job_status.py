"""The status of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from job_controller.core import names
from job_controller.core.pods import PodState
from paddlewheel.contracts.announcements import Announcements, render_announcements
from paddlewheel.contracts.conditions import Conditions, explain, find, render_conditions
from paddlewheel.contracts.crds import JobProgress
from paddlewheel.contracts.crds.paddlejob import (
    GangKind,
    LastRestart,
    SavedModel,
    World,
)
from paddlewheel.contracts.generated.jobs_v1 import JobAccepted
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import human_duration, parse_stamp
from paddlewheel.operator.domain import plan as operator


@dataclass(frozen=True)
class RoleStatus:
    """Pods of one role by state, and references to them, also to pods that have succeeded and are gone."""

    counts: Mapping[PodState, int] = field(default_factory=dict)
    refs: tuple[Mapping[str, str], ...] = ()
    succeeded_indexes: tuple[int, ...] = ()

    def count(self, state: PodState) -> int:
        return self.counts.get(state, 0)

    def render(self) -> dict[str, Any]:
        """The JSON of `status.<role>` of the PaddleJob."""
        counts = {s.value: self.count(s) for s in PodState}
        indexes = {"succeededIndexes": list(self.succeeded_indexes)} if self.succeeded_indexes else {}
        return {**counts, "refs": [dict(r) for r in self.refs], **indexes}


def _rendered(part: LastRestart | SavedModel | World | None) -> dict[str, Any]:
    """The part as JSON; empty fields are left out."""
    return part.model_dump(by_alias=True, exclude_defaults=True) if part else {}


def render_progress(progress: JobProgress | None) -> dict[str, Any]:
    """The progress as JSON, without unknown fields."""
    if progress is None:
        return {}
    values = progress.model_dump(by_alias=True)
    return {name: value for name, value in values.items() if value is not None and value != ""}


@dataclass(frozen=True)
class GangStatus:
    """How the pods are scheduled together, for `status.gang`."""

    kind: GangKind
    pod_group: str = ""
    min_available: int = 0
    phase: str = ""
    message: str = ""

    def render(self) -> dict[str, Any]:
        """The JSON of `status.gang`, without empty fields."""
        rendered = {
            "kind": self.kind.value,
            "podGroup": self.pod_group,
            "minAvailable": self.min_available,
            "phase": self.phase,
            "message": self.message,
        }
        return {name: value for name, value in rendered.items() if value}


@dataclass(frozen=True)
class JobStatus:
    """The status of a job. Times are RFC 3339 UTC."""

    phase: str = ""
    mode: str = ""
    ready: str = ""
    selector: str = ""
    """Finds the workers' pods by their labels."""
    roles: Mapping[str, RoleStatus] = field(default_factory=dict)
    start_time: str = ""
    completion_time: str = ""
    observed_generation: int = 0
    conditions: Conditions = ()
    announcements: Announcements = ()
    results: Mapping[str, float] = field(default_factory=dict)
    saved_model: SavedModel | None = None
    stuck_on: tuple[str, ...] = ()
    """Causes that the job has been stuck on, in the order of their first occurrence."""
    epoch: int = 0
    """How often all pods were replaced."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """The number of restarts by cause."""
    budgets: Mapping[str, int] = field(default_factory=dict)
    """Restarts that count against each limit, by its name."""
    last_restart: LastRestart | None = None
    world: World | None = None
    replacing: tuple[str, ...] = ()
    """Uids of failed pods that are counted in `restarts` and replaced, each by itself."""
    suspensions: int = 0
    progress: JobProgress | None = None
    """Written by the replica that receives a report; a pass leaves it as it is."""
    gang: GangStatus | None = None
    """None of a job that does not ask for a gang."""

    @property
    def final(self) -> bool:
        return self.phase in names.FINAL_PHASES

    @property
    def was_accepted(self) -> bool:
        """The fact JobAccepted is recorded, so others may follow, though the spec may be wrong by now."""
        return any(fact.fact == JobAccepted.__name__ for fact in self.announcements)

    def condition(self, type_: str) -> str:
        """Status of the condition, "" when absent."""
        found = find(self.conditions, type_)
        return found.status if found else ""

    @property
    def seconds(self) -> float | None:
        """From start to end, None before."""
        started, ended = parse_stamp(self.start_time), parse_stamp(self.completion_time)
        return max(0.0, (ended - started).total_seconds()) if started and ended else None

    @property
    def _explanation(self) -> dict[str, str]:
        if self.phase == names.TERMINATING:
            return {"reason": Reason.TERMINATING, "message": ""}
        return explain(self.conditions, names.EXPLAINED_BY)

    def render(self) -> dict[str, Any]:
        """The JSON of `status` of the PaddleJob, without empty fields."""
        rendered: dict[str, Any] = {
            "phase": self.phase,
            "mode": self.mode,
            "ready": self.ready,
            "selector": self.selector,
            "startTime": self.start_time,
            "completionTime": self.completion_time,
            "duration": "" if self.seconds is None else human_duration(self.seconds),
            "results": dict(self.results),
            "savedModel": _rendered(self.saved_model),
            "epoch": self.epoch,
            "restarts": dict(self.restarts),
            "budgets": dict(self.budgets),
            "lastRestart": _rendered(self.last_restart),
            "world": _rendered(self.world),
            "replacing": list(self.replacing),
            "suspensions": self.suspensions,
            "stuckOn": list(self.stuck_on),
            "progress": render_progress(self.progress),
            "gang": self.gang.render() if self.gang else {},
            **{name: role.render() for name, role in self.roles.items()},
        }
        return {
            **{name: value for name, value in rendered.items() if value},
            **self._explanation,
            "observedGeneration": self.observed_generation,
            "conditions": render_conditions(self.conditions),
            "announcements": render_announcements(self.announcements),
        }


Plan = operator.Plan[JobStatus]
