"""A job as asked for and as observed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.parts import (
    Delay,
    Flavor,
    Gang,
    NodeLife,
    PodGroup,
    PortBlock,
    PortClaim,
    Priority,
    Rivals,
    SampleSet,
    Workload,
)
from job_controller.core.pods import Pod, PodId, PodState
from job_controller.core.progress_access import ProgressAccess
from paddlewheel.contracts.crds import Network
from paddlewheel.contracts.crds.paddlejob import (
    GangKind,
)
from paddlewheel.operator.domain.plan import Trouble, earliest

if TYPE_CHECKING:
    from job_controller.core.feature import Feature


AUTO: Literal["Auto"] = "Auto"
"""The kind of PodGroups is chosen for each job. The default of an installation."""


@dataclass(frozen=True)
class Observed:
    """Everything one decision is made from. Children listed here are this job's own.

    Args:
        pods: the pods of the present epoch.
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
        port_block: the block of ports that the job is to claim.
        is_reported: the watch has reported every write of ours to the job, and so every claim before its own.
        logs: last lines by pod, of a finished job whose pods are to be deleted.
        listening_since: when this service began to receive reports of progress.
        pod_groups: those of the job's name, at most one of each kind.
        gang_kinds: kinds of PodGroups that the cluster's API has.
        gang_scheduling: the installation's choice of PodGroups: Auto, None, Volcano or Native.
        gang: how the pods are scheduled.
        workload: None when there is none of the job.
        has_kueue: the cluster's API has Workloads.
        flavors: the ResourceFlavors of pods to be made now, by name.
        priority: the priority of a Workload to be made now, None for a job without a priority.
        rivals: looked at for jobs that have fewer workers than they want.
        delays: by place, when a pod that was lost several times is made again.
        was_changed_since_restart: the user has changed the job since its last restart.
        schedulers: when each was last seen at work, by name.
        unscheduled_since: by uid, when this process first saw that a pod waits for its scheduler.
        gates_open_since: by uid, the pods at gates that have nothing more to wait for.
        gate_url: the address of this service without a name, for gates of pods that find no Service. "" when
            none is needed or known.
        misses_gate_url: it is needed, and this service cannot look it up.
        held_since: by uid, the deleted pod that holds the lowest rank of an elastic job.
        useless: workers beyond the present world, which go now.
        next_look: seconds until time alone changes what the rules have found so far.
        features: the features that apply to the job.
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
    port_block: PortBlock = field(default_factory=PortBlock)
    is_reported: bool = True
    logs: Mapping[str, str] = field(default_factory=dict)
    listening_since: datetime | None = None
    pod_groups: tuple[PodGroup, ...] = ()
    gang_kinds: frozenset[GangKind] = frozenset()
    gang_scheduling: str = AUTO
    gang: Gang = field(default_factory=Gang)
    workload: Workload | None = None
    has_kueue: bool = False
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    priority: Priority | None = None
    rivals: Rivals = field(default_factory=Rivals)
    node_lives: Mapping[str, NodeLife] | None = None
    delays: Mapping[PodId, Delay] = field(default_factory=dict)
    was_changed_since_restart: bool = False
    schedulers: Mapping[str, datetime] = field(default_factory=dict)
    unscheduled_since: Mapping[str, datetime] = field(default_factory=dict)
    gates_open_since: Mapping[str, datetime] = field(default_factory=dict)
    gate_url: str = ""
    misses_gate_url: bool = False
    held_since: Mapping[str, datetime] = field(default_factory=dict)
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
        """Some pod may have met the others: from now on the loss of one is the loss of all.

        When the ConfigMap has the addresses, a container may have read it long before its kubelet reports
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
        """The pods of the present epoch, also the pods that are gone."""
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
        """Pods that the spec asks for."""
        return tuple(pod for pod in self.pods if pod.id in self.job.wanted)

    @cached_property
    def world_pods(self) -> tuple[Pod, ...]:
        """Pods that train together."""
        return tuple(pod for pod in self.pods if self.job.trains(pod.id))

    @cached_property
    def succeeded(self) -> frozenset[PodId]:
        """Places whose pod has succeeded, though it may be gone by now."""
        roles = self.status.roles.items()
        before = (PodId(name, index) for name, role in roles for index in role.succeeded_indexes)
        return frozenset((*before, *(pod.id for pod in self.known_pods if pod.state is PodState.SUCCEEDED)))

    def succeeded_indexes(self, role: str) -> tuple[int, ...]:
        """The indexes of one role, in order."""
        return tuple(sorted(place.ordinal for place in self.succeeded if place.role == role))


def _runs_smoothly(pod: Pod) -> bool:
    runs = pod.state in (PodState.RUNNING, PodState.SUCCEEDED) and not pod.terminating
    return runs and not (pod.given_up or pod.hindrance or pod.gate_failure)


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
    """The address that gates ask. Both or neither."""
    port_range: tuple[int, int] = (35000, 65000)
    elastic_server: str = ""
    deletion_patience: float = 600.0
    gate_recheck: float = 30.0
    progress: ProgressAccess | None = None
    """None: programs do not report their progress."""
