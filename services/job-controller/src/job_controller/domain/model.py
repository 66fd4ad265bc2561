"""The words of this service: a job as asked for, as observed, and what to do about the difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any

from job_controller.domain import names
from paddlewheel.contracts.announcements import Announcements, pending
from paddlewheel.contracts.conditions import Conditions
from paddlewheel.contracts.keys import Key

Manifest = dict[str, Any]


class Network(Enum):
    """How the pods of a job address each other."""

    POD_IP = "PodIP"
    SERVICE = "Service"
    HOST = "Host"


class Mode(Enum):
    """What kind of training the job is."""

    PS = "PS"
    COLLECTIVE = "Collective"
    SINGLE = "Single"


class PodState(Enum):
    """Where one pod stands, named as the counts in the job's status."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


@dataclass(frozen=True)
class RoleSpec:
    """One role of the job as asked for; `template` is the user's pod template, never changed."""

    role: str
    replicas: int
    template: Mapping[str, Any]


@dataclass(frozen=True)
class SampleSetRef:
    """The data set whose volume the pods mount."""

    name: str
    namespace: str
    mount_path: str


@dataclass(frozen=True)
class JobSpec:
    """A PaddleJob's spec; roles stand in creation order, words as the user wrote them."""

    roles: tuple[RoleSpec, ...]
    intranet: str = ""
    clean_pod_policy: str = ""
    with_gloo: int = 0
    elastic: bool = False
    sample_set: SampleSetRef | None = None

    @property
    def network(self) -> Network:
        """Any unknown word means PodIP, as it always did."""
        return next((n for n in Network if n.value == self.intranet), Network.POD_IP)

    @property
    def mode(self) -> Mode:
        if self.replicas_of(names.PS) is not None:
            return Mode.PS
        return Mode.COLLECTIVE if (self.replicas_of(names.WORKER) or 0) > 1 else Mode.SINGLE

    def replicas_of(self, role: str) -> int | None:
        """Wanted pods of the role; None when the job has no such role."""
        return next((r.replicas for r in self.roles if r.role == role), None)

    def pod_ids(self) -> tuple[PodId, ...]:
        """Every wanted pod, by role and index."""
        return tuple(PodId(r.role, i) for r in self.roles for i in range(r.replicas))


@dataclass(frozen=True)
class PodId:
    """A pod's place in its job."""

    role: str
    index: int


@dataclass(frozen=True)
class RoleStatus:
    """Pods of one role by state, and references to them."""

    counts: Mapping[PodState, int] = field(default_factory=dict)
    refs: tuple[Mapping[str, str], ...] = ()

    def count(self, state: PodState) -> int:
        return self.counts.get(state, 0)


@dataclass(frozen=True)
class JobStatus:
    """What is written to the job's status; times are RFC 3339 UTC."""

    phase: str = ""
    mode: str = ""
    roles: Mapping[str, RoleStatus] = field(default_factory=dict)
    start_time: str = ""
    completion_time: str = ""
    observed_generation: int = 0
    conditions: Conditions = ()
    announcements: Announcements = ()
    results: Mapping[str, float] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        return self.phase in names.FINAL_PHASES

    def condition(self, type_: str) -> str:
        """Status of the condition, "" when absent."""
        return next((c.status for c in self.conditions if c.type == type_), "")

    def with_announcements(self, announcements: Announcements) -> JobStatus:
        return replace(self, announcements=announcements)


@dataclass(frozen=True)
class Job:
    """One PaddleJob. `deleted_at` is set while it is being deleted; `raw_status` is the status as stored."""

    key: Key
    uid: str
    generation: int
    resource_version: str
    spec: JobSpec
    status: JobStatus = JobStatus()
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    created_at: str = ""
    deleted_at: datetime | None = None
    raw_status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """Why a pod failed. `exit_code` is None when no container says one; `finished_at` is RFC 3339."""

    pod: str
    reason: str
    exit_code: int | None
    last_line: str
    finished_at: str = ""


@dataclass(frozen=True)
class Pod:
    """One pod that this job owns."""

    id: PodId
    name: str
    uid: str
    state: PodState
    ip: str = ""
    terminating: bool = False
    released: bool = False
    started_at: str = ""
    termination_message: str = ""
    failure: Failure | None = None


@dataclass(frozen=True)
class SampleSet:
    """What a job needs to know of its data set."""

    phase: str
    partitions: int


@dataclass(frozen=True)
class PortClaim:
    """Another job's block of host ports."""

    first_port: int
    created_at: str
    uid: str


@dataclass(frozen=True)
class Observed:
    """Everything one decision is made from. Children listed here are this job's own.

    `services` maps name to uid; `config` is the ConfigMap's data, None when it does not exist.
    """

    job: Job
    pods: tuple[Pod, ...] = ()
    services: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] | None = None
    sample_set: SampleSet | None = None
    port_claims: tuple[PortClaim, ...] = ()


@dataclass(frozen=True)
class Options:
    """The installation's settings that decisions depend on; times in seconds."""

    gate_image: str = ""
    port_range: tuple[int, int] = (35000, 65000)
    elastic_server: str = ""
    deletion_patience: float = 600.0
    gate_recheck: float = 30.0
    publish_retry: float = 5.0


class ChildKind(Enum):
    """Kinds of generated objects, in the order they are written."""

    CONFIG_MAP = "ConfigMap"
    SERVICE = "Service"
    POD = "Pod"


@dataclass(frozen=True)
class Child:
    """An object to create."""

    kind: ChildKind
    name: str
    manifest: Manifest


@dataclass(frozen=True)
class ChildRef:
    """An object to delete, and only that very one."""

    kind: ChildKind
    name: str
    uid: str


@dataclass(frozen=True)
class Note:
    """A Kubernetes event on the job."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Plan:
    """What to do now. `metadata` is a merge patch of the job's metadata, None when it is right."""

    status: JobStatus
    metadata: Mapping[str, Any] | None = None
    create: tuple[Child, ...] = ()
    delete: tuple[ChildRef, ...] = ()
    config_patch: Mapping[str, str | None] | None = None
    release: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    requeue_after: float | None = None

    @property
    def creates_pods(self) -> bool:
        return any(c.kind is ChildKind.POD for c in self.create)

    @property
    def unannounced(self) -> Announcements:
        return pending(self.status.announcements)
