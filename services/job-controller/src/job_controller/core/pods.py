"""Pods as the job's status is computed from them: their state, failure and result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

from job_controller.timing import (
    POD_END_GRACE_SECONDS,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.operator.domain.hindrance import Hindrance

Raw = Mapping[str, Any]
_EPOCH_DIGITS = 10
DEFAULT_SCHEDULER = "default-scheduler"


class PodState(Enum):
    """State of one pod, named as the counts in the job's status."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


ENDED = frozenset({PodState.FAILED, PodState.SUCCEEDED})


class PodId(NamedTuple):
    """A pod's place in its job; orders by role, then by ordinal."""

    role: str
    ordinal: int


@dataclass(frozen=True)
class Failure:
    """Why a pod failed. `exit_code` is None when no container has one; `finished_at` is RFC 3339."""

    pod: str
    reason: str
    exit_code: int | None
    last_line: str
    finished_at: str = ""
    cause: Reason = Reason.POD_FAILED
    """One of our reasons. `reason` is the reason of the kubelet."""
    container: str = ""
    """The container that failed, "" when it is the first one, which trains."""


@dataclass(frozen=True)
class ProgramEnd:
    """The first container, which trains, has ended for good, and other containers of its pod run on.

    Args:
        state: SUCCEEDED for exit code 0, else FAILED.
        ended_at: a time on the clock of its node.
        grace: the pod counts as ended this long after the end was seen. A kubelet that ends the whole pod, as
            in an eviction, gives the reason only after the last container, which has ended by then.
    """

    state: PodState
    failure: Failure | None
    ended_at: datetime
    grace: timedelta


class Awaited(NamedTuple):
    """An annotation that the gate of a former version waits for, and its present value."""

    annotation: str
    value: str


@dataclass(frozen=True)
class Pod:
    """One pod that a job owns; `job` is the name of its owner."""

    id: PodId
    job: str
    name: str
    uid: str
    state: PodState
    ip: str = ""
    terminating: bool = False
    created_at: str = ""
    """RFC 3339."""
    started_at: str = ""
    termination_message: str = ""
    failure: Failure | None = None
    hindrance: Hindrance | None = None
    container: str = ""
    """The first one, which trains."""
    node: str = ""
    finalizers: tuple[str, ...] = ()
    ends_by: str = ""
    """When a deleted pod should be gone, after its grace period; RFC 3339."""
    deletion_asked_at: datetime | None = None
    epoch: int = 0
    template: str = ""
    """Digest of what it was made of, "" when it was made by another controller."""
    elastic_workers: str = ""
    """The number of workers that Paddle's elastic launcher in it counts on, "" without one."""
    restart: str = ""
    """Value of the job's annotation `restart` that it was made with."""
    began: bool = False
    """Its own containers have been started, so it may have met the others."""
    given_up: bool = False
    """Its failure is counted, and another pod takes its place once it is gone."""
    disruption: Reason | None = None
    """The disruption that makes or made it leave its node."""
    group: str = ""
    """Kubernetes' own PodGroup that it belongs to."""
    data_node: str = ""
    """The node that held its part of the data set when it was made, "" when it has none."""
    unprepared_since: str = ""
    """The time since which its node prepares its volumes and network; RFC 3339, "" once they are ready."""
    program_end: ProgramEnd | None = None
    end_seen_at: datetime | None = None
    """When the end of its program was first seen, by our own clock: that of its node may be wrong. The node's
    time for an end that no watch reported, None without one."""
    restarts: int = 0
    """How often its kubelet restarted the first container in place."""
    unseen_scheduler: str = ""
    """The scheduler that the pod asks for and that has not looked at it, "" once it has."""
    at_gate: bool = False
    """Its gate runs."""
    awaited: Awaited | None = None
    """The annotation that its gate waits for, None for a gate that asks or has ended."""
    gate_failure: str = ""
    """Why its gate got no answer, "" when it got one."""

    @property
    def holds_node(self) -> bool:
        """A container of it runs or may run."""
        return self.state not in ENDED or self.program_end is not None

    @property
    def reported_end(self) -> datetime | None:
        """When its program ended, by the clock of its node."""
        if self.program_end:
            return self.program_end.ended_at
        return parse_stamp(self.failure.finished_at) if self.failure else None

    @property
    def ended_at(self) -> datetime | None:
        """None when it is unknown: the kubelet evicts some pods without a status of their containers."""
        return self.end_seen_at or self.reported_end

    @property
    def overdue_at(self) -> datetime | None:
        """The time when a deleted pod is overdue. None for a pod that is not deleted."""
        ends = parse_stamp(self.ends_by) if self.terminating else None
        return ends + timedelta(seconds=POD_END_GRACE_SECONDS) if ends else None

    @property
    def failed_at(self) -> datetime | None:
        return self.ended_at if self.failure else None

    @property
    def speaker(self) -> str:
        """The container with the most useful output: the one that failed, else the one that trains."""
        return (self.failure.container if self.failure else "") or self.container


def parse_epoch(text: str) -> int | None:
    """None for what is no epoch: it may have more digits than `int` takes."""
    return int(text) if text.isdecimal() and len(text) < _EPOCH_DIGITS else None
