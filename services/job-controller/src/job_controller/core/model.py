"""A job as asked for and as observed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from job_controller.core import names
from job_controller.core.pods import Pod, PodId, PodState
from job_controller.core.progress_access import ProgressAccess
from paddlewheel.contracts.announcements import Announcements, render_announcements
from paddlewheel.contracts.conditions import Conditions, explain, find, render_conditions
from paddlewheel.contracts.crds import PADDLE_JOB, WORKER, JobProgress, Mode, Network, PaddleJobSpec
from paddlewheel.contracts.crds.admission_rules import FOREIGN_SAMPLE_SET
from paddlewheel.contracts.crds.paddlejob import (
    OWN_CONTROLLER,
    GangKind,
    LastRestart,
    RestartScope,
    SavedModel,
    World,
)
from paddlewheel.contracts.crds.violations import Subject, find_violations
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import labels_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import human_duration, parse_stamp
from paddlewheel.operator.domain.plan import Trouble, earliest

if TYPE_CHECKING:
    from job_controller.core.feature import Feature

Manifest = dict[str, Any]
DIGEST_VERSION = "1-"
"""Changes with what a digest is made of: pods with another one are never taken for outdated."""
_DIGEST_LENGTH = 16


@dataclass(frozen=True)
class Role:
    """One role of the job as asked for; `template` is the user's pod template, never changed."""

    name: str
    replicas: int
    template: Mapping[str, Any]


@dataclass(frozen=True)
class RoleStatus:
    """Pods of one role by state, and references to them; with those that have succeeded and are gone."""

    counts: Mapping[PodState, int] = field(default_factory=dict)
    refs: tuple[Mapping[str, str], ...] = ()
    succeeded_indexes: tuple[int, ...] = ()

    def count(self, state: PodState) -> int:
        return self.counts.get(state, 0)

    def render(self) -> dict[str, Any]:
        """For `status.<role>` of the PaddleJob."""
        counts = {s.value: self.count(s) for s in PodState}
        indexes = {"succeededIndexes": list(self.succeeded_indexes)} if self.succeeded_indexes else {}
        return {**counts, "refs": [dict(r) for r in self.refs], **indexes}


def _rendered(part: LastRestart | SavedModel | World | None) -> dict[str, Any]:
    """The part as JSON; empty fields are left out."""
    return part.model_dump(by_alias=True, exclude_defaults=True) if part else {}


def render_progress(progress: JobProgress | None) -> dict[str, Any]:
    """For JSON; without what is not known."""
    if progress is None:
        return {}
    values = progress.model_dump(by_alias=True)
    return {name: value for name, value in values.items() if value is not None and value != ""}


@dataclass(frozen=True)
class GangStatus:
    """How the pods are scheduled together, as `status.gang` says it."""

    kind: GangKind
    pod_group: str = ""
    min_available: int = 0
    phase: str = ""
    message: str = ""

    def render(self) -> dict[str, Any]:
        """What is empty is left out."""
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
    """What is written to the job's status; times are RFC 3339 UTC."""

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
    """How often all pods were made anew."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """By cause."""
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
        """For `status` of the PaddleJob; what is empty is left out."""
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


@dataclass(frozen=True)
class Job:
    """One PaddleJob, parsed once per version."""

    obj: Mapping[str, Any]
    key: Key
    uid: str
    generation: int
    spec: PaddleJobSpec
    status: JobStatus = JobStatus()
    deleted_at: datetime | None = None

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.obj["metadata"].get("annotations") or {}

    @property
    def queue(self) -> str:
        """Kueue's LocalQueue that the job waits in, "" for none."""
        return str(labels_of(self.obj).get(names.LABEL_QUEUE, ""))

    @property
    def finalizers(self) -> tuple[str, ...]:
        return tuple(self.obj["metadata"].get("finalizers") or ())

    @property
    def created_at(self) -> str:
        """RFC 3339."""
        return str(self.obj["metadata"].get("creationTimestamp", ""))

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """In creation order."""
        return tuple(Role(name, role.replicas, role.template or {}) for name, role in self.spec.roles.items())

    @cached_property
    def network(self) -> Network:
        """How its pods address each other."""
        return self.spec.network

    @cached_property
    def mode(self) -> Mode:
        """The kind of training."""
        return self.spec.mode

    @property
    def selector(self) -> str:
        """Of the workers' pods by their labels, "" without workers."""
        return f"{names.LABEL_JOB}={self.key.name},{names.LABEL_TYPE}={WORKER}" if self.spec.worker else ""

    @property
    def elastic(self) -> bool:
        """`elastic: 0` is off."""
        return bool(self.spec.elastic)

    @property
    def is_anothers(self) -> bool:
        """`managedBy` names another controller."""
        return self.spec.managed_by not in ("", OWN_CONTROLLER)

    @property
    def restart_request(self) -> str:
        """The user's mark for a restart; a new value asks for one."""
        return str(self.annotations.get(names.ANNOTATION_RESTART, ""))

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """Reasons why the spec could never work, although the schema in the cluster may let it through. Each
        has the field and what to do."""
        subject = Subject(self.key.name, self.key.namespace, self.spec)
        refused = (FOREIGN_SAMPLE_SET.text(subject),) if FOREIGN_SAMPLE_SET.is_true_of(subject) else ()
        return (*map(str, find_violations(PADDLE_JOB, subject)), *refused)

    @cached_property
    def scope(self) -> RestartScope:
        """What is restarted after a failure. Elastic pods meet in a rendezvous of their own."""
        asked = self.spec.failure_policy.restart_scope if self.spec.failure_policy else ""
        return RestartScope.POD if self.elastic or asked == RestartScope.POD else RestartScope.GANG

    @cached_property
    def pod_ids(self) -> tuple[PodId, ...]:
        """Every wanted pod, by role and index."""
        return tuple(PodId(r.name, i) for r in self.roles for i in range(r.replicas))

    @cached_property
    def wanted(self) -> frozenset[PodId]:
        """The same as a set."""
        return frozenset(self.pod_ids)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """By role, of what the user's spec says about its pods, apart from their number."""
        return {role.name: _digest(self.spec, role) for role in self.roles}

    @property
    def least_workers(self) -> int:
        """The job can train with as few."""
        wanted, least = self.replicas_of(WORKER), self.spec.worker.requests if self.spec.worker else None
        return least if least is not None and 0 < least < wanted else wanted

    @property
    def is_resizable(self) -> bool:
        """It can train with fewer workers than it wants. Paddle's own elastic launcher counts by itself."""
        return self.least_workers < self.replicas_of(WORKER) and not self.elastic

    @cached_property
    def fitting_world(self) -> World | None:
        """The recorded one, unless the user has changed the numbers since."""
        world, wanted = self.status.world, self.replicas_of(WORKER)
        if world is None or world.of != wanted or not self.least_workers <= world.workers <= wanted:
            return None
        return world if world.workers < wanted or (world.grew_from and self.is_resizable) else None

    @property
    def workers(self) -> int:
        """Those that train: fewer than wanted while there is no room for all."""
        return self.fitting_world.workers if self.fitting_world else self.replicas_of(WORKER)

    def least_of(self, role: str) -> int:
        """Pods of the role without which the job cannot train."""
        return self.least_workers if role == WORKER else self.replicas_of(role)

    def size_of(self, role: str) -> int:
        """Pods of the role that train together now; wanted ones beyond it wait for room."""
        return self.workers if role == WORKER else self.replicas_of(role)

    def trains(self, place: PodId) -> bool:
        """The pod of this place is one of those that train together now."""
        return place.ordinal < self.size_of(place.role)

    def pod_name(self, place: PodId) -> str:
        """`<job>-<role>-<i>`."""
        return names.pod_name(self.key.name, place.role, place.ordinal)

    @cached_property
    def unfinished_names(self) -> Mapping[str, str]:
        """By role, with spaces: of the pods that train and have not succeeded, for theirs resolve no more."""
        return {role.name: self._unfinished_names(role.name) for role in self.roles}

    def _unfinished_names(self, role: str) -> str:
        recorded = self.status.roles.get(role)
        done = frozenset(recorded.succeeded_indexes) if recorded else frozenset[int]()
        places = (place for place in self.world if place.role == role and place.ordinal not in done)
        return " ".join(map(self.pod_name, places))

    @cached_property
    def world(self) -> tuple[PodId, ...]:
        """Pods that train together now, by role and index."""
        return tuple(PodId(r.name, i) for r in self.roles for i in range(self.size_of(r.name)))

    @property
    def sample_set(self) -> Key | None:
        """Address of the data set that the pods mount."""
        ref = self.spec.sample_set_ref
        return None if ref is None else Key(ref.namespace or self.key.namespace, ref.name)

    def replicas_of(self, role: str) -> int:
        """Wanted pods of the role, 0 when the job has no such role."""
        return self.spec.replicas_of(role) or 0


def _digest(spec: PaddleJobSpec, role: Role) -> str:
    data = spec.sample_set_ref
    required = [data.placement] if data and data.is_required else []
    of = {
        "template": role.template,
        "network": spec.network,
        "elastic": bool(spec.elastic),
        "checkpointPath": spec.checkpoint_path,
        "data": [data.name, data.mount_path, *required] if data else [],
    }
    return make_digest(DIGEST_VERSION, of)


def make_digest(version: str, of: Mapping[str, Any]) -> str:
    """Of what an object is made of, after the version of what that is taken to be."""
    text = json.dumps(of, sort_keys=True, default=dict)
    return version + hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]


@dataclass(frozen=True)
class LostMount:
    """A node that has lost the mount of a data set.

    Args:
        since: None when that is unknown.
        reason: one of `Reason`, as dataset-controller gives it.
    """

    since: datetime | None
    message: str
    reason: str = ""


@dataclass(frozen=True)
class SampleSet:
    """What a job needs to know about its data set."""

    phase: str
    partitions: int
    message: str = ""
    reason: str = ""
    nodes: Mapping[int, str] = field(default_factory=dict)
    """By partition."""
    cached: Mapping[int, int] = field(default_factory=dict)
    """By partition, what its node has cached, in percent of the partition's share of the set."""
    lost_mounts: Mapping[str, LostMount] = field(default_factory=dict)
    """By node."""
    mounted: int = 0
    """Partitions that have it mounted."""

    @property
    def is_ready(self) -> bool:
        return self.phase == "Ready"

    @property
    def is_well(self) -> bool:
        """There is nothing to look at until a fact says otherwise. A set may be ready on other nodes again,
        with pods left where it was."""
        return self.is_ready and not self.lost_mounts

    @cached_property
    def fullest(self) -> tuple[int, ...]:
        """Partitions by what is cached, the fullest first; those that have not told are not among them."""
        told = (partition for partition in self.cached if partition < self.partitions)
        return tuple(sorted(told, key=lambda partition: (-self.cached[partition], partition)))


@dataclass(frozen=True)
class Rivals:
    """The pods of other jobs on the nodes that this job might grow on.

    Args:
        need: pods that train wait for a node, or will in a moment, for their job is between two epochs.
        refused: a scheduler has found no node for some of these pods.
        grow: workers have found a node for which their job is about to restart.
        look: workers beyond those that train look for room.
    """

    need: bool = False
    refused: bool = False
    grow: bool = False
    look: bool = False


class NodeLife(Enum):
    """Whether the Lease of a node was renewed after a rank on another node failed, by our own clock.

    ALIVE: it was. WAITING: not yet. LOST: not for so long that the node is lost. REMOVED: the Lease has been
    deleted, as with the node. UNKNOWN: the Lease cannot be read.
    """

    ALIVE = "alive"
    WAITING = "waiting"
    LOST = "lost"
    REMOVED = "removed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Delay:
    """A pod is made again at this time, because pods of its place were lost several times in a row.

    Args:
        why: the last loss.
    """

    until: datetime
    why: str


@dataclass(frozen=True)
class PortClaim:
    """Another job's block of host ports."""

    first_port: int
    created_at: str
    uid: str


@dataclass(frozen=True)
class PodGroup:
    """A PodGroup of the job's name.

    Args:
        is_own: the job controls it; otherwise its user has written it, and it is used as it is.
        is_going: it is being deleted, which takes as long as it has pods.
        phase, message: Volcano's.
    """

    kind: GangKind
    uid: str
    spec: Mapping[str, Any]
    is_own: bool = True
    is_going: bool = False
    phase: str = ""
    message: str = ""


@dataclass(frozen=True)
class Workload:
    """What Kueue knows and has decided about the job.

    Args:
        version: its resourceVersion.
        digest: of what it was made of.
        is_active: False once it has been deactivated, until its user activates it again.
        flavors: by role, names of the ResourceFlavors that its pods are admitted with.
    """

    uid: str
    version: str
    digest: str
    is_active: bool = True
    is_going: bool = False
    conditions: Conditions = ()
    has_quota: bool = False
    flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Priority:
    """A job's priority in its queue: the object that gives it, and the number."""

    kind: str
    name: str
    value: int


@dataclass(frozen=True)
class Flavor:
    """Where pods of a ResourceFlavor of Kueue run."""

    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Observed:
    """Everything one decision is made from. Children listed here are this job's own.

    Args:
        pods: of the present epoch.
        old_pods: pods of former epochs, see `holds_former_world`.
        gone: pods of the present epoch that the status lists and that are there no more, as last seen.
        former_pods: pods of a deleted job of the same name under names that this one needs.
        has_former_others: there are other objects of it under such names.
        services: name -> uid.
        config: the ConfigMap's data, None when there is none of the present epoch.
        old_config: uid of the ConfigMap of a former epoch, "" when there is none.
        sample_set: None when it does not exist, or was not needed.
        trouble: why the data set, or what Kueue needs, could not be read.
        retry_after: seconds until it should be read again.
        port_claims: host ports of the other jobs.
        is_reported: the watch has reported every write of ours to the job, and so every claim before its own.
        logs: last lines by pod, of a finished job whose pods are to be deleted.
        listening_since: when this service began to receive reports of progress.
        pod_groups: those of the job's name, at most one of each kind.
        gang_kinds: kinds of PodGroups that the cluster's API has.
        workload: None when there is none of the job.
        has_kueue: the cluster's API has Workloads.
        flavors: those that pods to be made now are admitted with, by name.
        priority: of a Workload to be made now, None for that of a job without any.
        rivals: looked at for jobs that have fewer workers than they want.
        delays: by place, when a pod that was lost several times is made again.
        is_asked_anew: the user has changed the job since its last restart.
        schedulers: when each was last seen at work, by name.
        unscheduled_since: by uid, when this process first saw that a pod waits for its scheduler.
        gates_open_since: by uid, the pods at gates that have nothing more to wait for.
        useless: workers beyond the present world, which go now.
        next_look: seconds until time alone changes what the rules have found so far.
        features: those that apply to the job.
        node_lives: by node, when a verdict depends on nodes. No map: Leases were not read.
    """

    job: Job
    pods: tuple[Pod, ...] = ()
    old_pods: tuple[Pod, ...] = ()
    gone: tuple[Pod, ...] = ()
    former_pods: tuple[Pod, ...] = ()
    has_former_others: bool = False
    services: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] | None = None
    old_config: str = ""
    sample_set: SampleSet | None = None
    trouble: Trouble | None = None
    retry_after: float | None = None
    port_claims: tuple[PortClaim, ...] = ()
    is_reported: bool = True
    logs: Mapping[str, str] = field(default_factory=dict)
    listening_since: datetime | None = None
    pod_groups: tuple[PodGroup, ...] = ()
    gang_kinds: frozenset[GangKind] = frozenset()
    workload: Workload | None = None
    has_kueue: bool = False
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    priority: Priority | None = None
    rivals: Rivals = Rivals()
    node_lives: Mapping[str, NodeLife] | None = None
    delays: Mapping[PodId, Delay] = field(default_factory=dict)
    is_asked_anew: bool = False
    schedulers: Mapping[str, datetime] = field(default_factory=dict)
    unscheduled_since: Mapping[str, datetime] = field(default_factory=dict)
    gates_open_since: Mapping[str, datetime] = field(default_factory=dict)
    useless: tuple[Pod, ...] = ()
    next_look: float | None = None
    features: tuple[Feature, ...] = field(default=(), compare=False, repr=False)

    def looking_at(self, times: Iterable[datetime], now: datetime) -> Observed:
        """The same, with another pass at the next of these times."""
        looks = ((at - now).total_seconds() for at in times if at > now)
        return replace(self, next_look=earliest(self.next_look, *looks))

    @property
    def obj(self) -> dict[str, Any]:
        """The job as the API server gave it."""
        return dict(self.job.obj)

    @property
    def status(self) -> JobStatus:
        return self.job.status

    @property
    def waits_for_former(self) -> bool:
        """Nothing can be created yet."""
        return self.has_former_others or bool(self.former_pods)

    @property
    def must_wait(self) -> bool:
        """Nothing is created while pods of a former epoch or job hold names, ports and room."""
        return self.waits_for_former or self.holds_former_world

    @property
    def holds_former_world(self) -> bool:
        """A pod of a former epoch holds what the present one needs.

        When a job has shrunk, its deleted pods beyond the workers that train hold nothing: their node may
        never confirm their end.
        """
        is_resizable = self.job.is_resizable
        return any(not (is_resizable and pod.terminating) or self.job.trains(pod.id) for pod in self.old_pods)

    @property
    def has_begun(self) -> bool:
        """Some pod may have met the others: from now on they stand and fall together.

        Where the ConfigMap tells the addresses, a container may have read it long before its kubelet says
        that it runs.
        """
        is_running = self.status.condition(names.CONDITION_RUNNING) == "True"
        return self.config_is_told or is_running or any(pod.began for pod in self.known_pods)

    @property
    def config_is_told(self) -> bool:
        """Pods may have read their addresses, which are in the ConfigMap once all have one."""
        return self.config is not None and self.job.network is not Network.SERVICE

    def pod_group(self, kind: GangKind) -> PodGroup | None:
        """The PodGroup of this kind, None when there is none."""
        return next((group for group in self.pod_groups if group.kind is kind), None)

    @property
    def known_pods(self) -> tuple[Pod, ...]:
        """Of the present epoch, with those that are gone."""
        return (*self.pods, *self.gone)

    @cached_property
    def by_id(self) -> Mapping[PodId, Pod]:
        """Pods by their place in the job."""
        return {pod.id: pod for pod in self.pods}

    @cached_property
    def runs_smoothly(self) -> bool:
        """Every wanted pod runs or has succeeded, there are no other pods, and nothing was reported about
        them."""
        if self.old_pods or self.waits_for_former or not all(map(_runs_smoothly, self.pods)):
            return False
        return all(place in self.by_id or place in self.succeeded for place in self.job.pod_ids)

    @cached_property
    def wanted_pods(self) -> tuple[Pod, ...]:
        """Those that the spec asks for."""
        return tuple(pod for pod in self.pods if pod.id in self.job.wanted)

    @cached_property
    def world_pods(self) -> tuple[Pod, ...]:
        """Those that train together."""
        return tuple(pod for pod in self.pods if self.job.trains(pod.id))

    @cached_property
    def succeeded(self) -> frozenset[PodId]:
        """Places whose pod has succeeded, though it may be gone by now."""
        roles = self.status.roles.items()
        before = (PodId(name, index) for name, role in roles for index in role.succeeded_indexes)
        return frozenset((*before, *(pod.id for pod in self.known_pods if pod.state is PodState.SUCCEEDED)))

    def succeeded_indexes(self, role: str) -> tuple[int, ...]:
        """Of one role, in order."""
        return tuple(sorted(place.ordinal for place in self.succeeded if place.role == role))


def _runs_smoothly(pod: Pod) -> bool:
    is_released = pod.released or not pod.awaits_release
    runs = pod.state in (PodState.RUNNING, PodState.SUCCEEDED) and not pod.terminating
    return runs and is_released and not (pod.given_up or pod.hindrance or pod.gate_failure)


def with_pods(seen: Observed, pods: Iterable[Pod], gone: Collection[Pod] = ()) -> Observed:
    """The job's pods by epoch; one that is being replaced by itself has only its name left.

    Args:
        gone: deleted pods of the job, as they were last seen.
    """
    status, given = seen.job.status, tuple(pods)
    present = (p for p in given if p.epoch >= status.epoch)
    old = tuple(p for p in given if p.epoch < status.epoch)
    lost = tuple(p for p in gone if _is_missed(p, status))
    return replace(seen, pods=tuple(_replaced(p, status.replacing) for p in present), old_pods=old, gone=lost)


def _is_missed(pod: Pod, status: JobStatus) -> bool:
    """The status does not count the loss of this pod yet."""
    return pod.epoch >= status.epoch and pod.uid not in status.replacing


def _replaced(pod: Pod, uids: Collection[str]) -> Pod:
    if pod.uid not in uids:
        return pod
    # Its restarts in place are counted with the restart that has given it up.
    return replace(pod, state=PodState.PENDING, failure=None, hindrance=None, given_up=True, restarts=0)


@dataclass(frozen=True)
class Options:
    """The installation's settings that decisions depend on; times in seconds."""

    gate_image: str = ""
    gate_url: str = ""
    port_range: tuple[int, int] = (35000, 65000)
    elastic_server: str = ""
    deletion_patience: float = 600.0
    gate_recheck: float = 30.0
    progress: ProgressAccess | None = None
    """None: programs do not report their progress."""
    gang_scheduling: str = "Auto"
    """Which PodGroups are made: Auto, None, Volcano or Native."""
