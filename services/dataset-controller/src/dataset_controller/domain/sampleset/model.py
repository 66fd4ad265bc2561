"""SampleSet as values: spec, observed state, status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.paths import DEFAULT_PLACES, CacheDirectory, Places
from dataset_controller.domain.runs import SetIdentity
from dataset_controller.domain.secrets import SecretSeen
from dataset_controller.domain.sources import RunKeys, Source
from dataset_controller.domain.status import ObjectStatus
from dataset_controller.domain.stored import Stored
from paddlewheel.contracts.generated.cache_v1 import (
    NodeStatus,
    RunState,
    SamplerOrder,
    WarmupOperation,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import Object, key_of, spec_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.operator.domain import plan as operator
from paddlewheel.operator.domain.plan import Trouble

RESOURCES: Mapping[str, Mapping[str, str | int | float]] = {"requests": {"cpu": "50m", "memory": "128Mi"}}
"""The default resources of runtime pods, without a limit of memory: caches in memory count as the pod's, and
a pod that exceeds its limit takes the mount with it."""

NO_RUNTIME = Key("", "")
FREE_SPACE_RATIO = "0.2"
"""More than the share below which a kubelet evicts pods: 15 % of the disk of images, 10 % of its own."""


@dataclass(frozen=True)
class BusFiles:
    """The files with which runtime pods connect to the bus.

    Args:
        authority: the ConfigMap with `ca.crt`; "" means no TLS.
        tokens: the pods show service-account tokens.
        credentials: the Secret with `nats.creds`; "" means none.
    """

    authority: str = ""
    tokens: bool = False
    credentials: str = ""


@dataclass(frozen=True)
class RuntimeConfig:
    """The installation's settings of runtime pods.

    Args:
        places: directories of the nodes that they may use.
        resources: requests and limits of each pod, like a container's.
        service_account: "" means the namespace's default.
        priority_class: "" means none.
        tolerations: a set's own are added.
        free_space_ratio: the share of a cache's disk that stays free, unless a set has its own.
    """

    image: str
    nats_url: str
    pull_policy: str = "IfNotPresent"
    settings: Mapping[str, str] = field(default_factory=dict)
    bus: BusFiles = BusFiles()
    places: Places = DEFAULT_PLACES
    resources: Mapping[str, Mapping[str, str | int | float]] = field(default_factory=lambda: RESOURCES)
    service_account: str = ""
    priority_class: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    free_space_ratio: str = FREE_SPACE_RATIO


@dataclass(frozen=True)
class CacheSpec:
    """Directories of the cache on the nodes, and their total size in MiB."""

    directories: tuple[CacheDirectory, ...]
    size_mib: int

    @property
    def paths(self) -> tuple[str, ...]:
        """The set's own directories, as the client is given them: with equal shares of the size."""
        return tuple(path for directory in self.directories for path in directory.paths)


@dataclass(frozen=True)
class SetSpec:
    """The spec with its defaults, references and paths resolved.

    Args:
        mount_options: JuiceFS's, sorted, without cache-dir and cache-size.
    """

    partitions: int
    no_sync: bool
    source: Source | None
    engine_secret: Key
    source_secret: Key
    mount_options: tuple[tuple[str, str], ...]
    cache: CacheSpec
    node_affinity: Mapping[str, Any] | None
    tolerations: Sequence[Mapping[str, Any]]
    warmup: WarmupOperation | None

    @property
    def is_writeback(self) -> bool:
        """Whether pods write to the cache of their node first."""
        return ("writeback", "true") in self.mount_options


@dataclass(frozen=True, order=True)
class CacheMark:
    """A moment in the life of the caches; the greater is the later.

    Args:
        at: RFC 3339, to the millisecond.
        job: the SampleJob that ended then, "" for the set's own warmup, which began then.
    """

    at: str = ""
    job: str = ""


@dataclass(frozen=True)
class CacheChange:
    """A change of the caches, or of their contents, by a SampleJob.

    Args:
        reason: Warmed, PartlyCached, CacheCleared or DataChanged.
        paths: what a warmup has loaded, or where a sync has copied to; "" is the set's root.
        file: the list of a warmup of listed files.
        sampler: whose order a warmup has followed: it decides which files a partition has.
        bytes: that a warmup has loaded.
        since: when a warmup began, as `mark.at`.
    """

    mark: CacheMark
    reason: Reason
    paths: frozenset[str] = frozenset()
    file: str = ""
    sampler: SamplerOrder | None = None
    bytes: int = 0
    since: str = ""

    def render(self) -> dict[str, str]:
        """The form in the status of the SampleSet."""
        return {"time": self.mark.at, "sampleJobName": self.mark.job, "reason": self.reason.value}


@dataclass(frozen=True)
class Warmth:
    """The contents of the caches after the last warmup that made the set warm.

    Args:
        bytes: loaded by the warmup; 0 when that is unknown.
        held: the part that the agents' first reports after that found in the caches; 0 before them.
    """

    bytes: int = 0
    held: int = 0


_EXPLAINED_BY = ((Cond.ACCEPTED, "False"), (Cond.RECONCILED, "False"), (Cond.READY, ""))
"""Conditions that `status.reason` is taken from, the most important first."""


@dataclass(frozen=True)
class SyncOrigin:
    """The source of an attempt of the first sync.

    Args:
        uri: "" when none was recorded.
        overwrites: an earlier one had another source, so files of the same size may be of that one.
    """

    uri: str = ""
    overwrites: bool = False


@dataclass(frozen=True)
class SetStatus(ObjectStatus):
    """The status of the contract (B.6). Figures are texts, as the contract has them."""

    phase: SetPhase = SetPhase.NOT_BOUND
    sync_job: str = ""
    sync_origin: SyncOrigin = SyncOrigin()
    warmup_job: str = ""
    warmup_nodes: tuple[str, ...] = ()
    """Nodes of the partitions that this warmup was for; elsewhere the set is cold."""
    warmup_series: int = 0
    """The number of times it was started again, with other options or for other nodes: part of the run's
    id."""
    warmup_digest: str = ""
    """The digest of the request; "" when an older release started it."""
    runtime: Mapping[str, Any] = field(default_factory=dict)
    cache: Mapping[str, Any] = field(default_factory=dict)
    cache_mark: CacheMark = CacheMark()
    """The last change of the caches that is part of Warmed: older jobs do not count."""
    invalidation: CacheChange | None = None
    """The last one that no warmup makes good which began before it."""
    warmed_at: str = ""
    """When the set's own warmup had ended, as `cache_mark.at`."""
    warmth: Warmth = Warmth()
    cache_directories: tuple[str, ...] = ()
    """On the nodes, of the runtime pods that there are or were: nodes keep them without a StatefulSet."""
    was_writeback: bool = False
    """Pods write to the cache of their node first, or did once: nodes may have what no store has."""
    nodes_with_writes: tuple[str, ...] = ()
    """The nodes in StagedWrites: the bus may lose the reports that named them."""

    @property
    def was_mounted(self) -> bool:
        """On some node, once: phases go no further back."""
        return self.phase not in (SetPhase.NOT_BOUND, SetPhase.BOUND)

    def render(self) -> dict[str, Any]:
        """The form in the status of the SampleSet."""
        jobs = {
            "syncJobName": self.sync_job,
            "syncSource": self.sync_origin.uri,
            "syncOverwrites": self.sync_origin.overwrites,
            "warmupJobName": self.warmup_job,
            "warmupNodes": list(self.warmup_nodes),
            "warmupSeries": self.warmup_series,
            "warmupDigest": self.warmup_digest,
        }
        mark = {
            "time": self.cache_mark.at,
            "sampleJobName": self.cache_mark.job,
            "warmedBytes": self.warmth.bytes,
            "heldBytes": self.warmth.held,
            "warmedTime": self.warmed_at,
            "invalidation": self.invalidation and self.invalidation.render(),
        }
        return {
            "phase": self.phase.value,
            "runtimeStatus": dict(self.runtime),
            "jobsName": {name: found for name, found in jobs.items() if found},
            "cacheStatus": dict(self.cache),
            **({"lastCacheChange": {k: v for k, v in mark.items() if v}} if self.cache_mark.at else {}),
            **({"wasWriteback": True} if self.was_writeback else {}),
            **({"nodesWithWrites": list(self.nodes_with_writes)} if self.nodes_with_writes else {}),
            **({"cacheDirectories": list(self.cache_directories)} if self.cache_directories else {}),
            **self._render_common(_EXPLAINED_BY),
        }


@dataclass(frozen=True, kw_only=True)
class SampleSet(Stored):
    """One SampleSet.

    Args:
        spec: None, with a problem, when it cannot work. With a problem beside it, its directories are
            not lent, or no longer: nothing is made from it, and what exists is observed.
    """

    status: SetStatus
    spec: SetSpec | None
    problem: Problem | None = None

    @property
    def identity(self) -> SetIdentity:
        return SetIdentity(self.key.namespace, self.key.name, self.uid)

    def run_key(self, run_id: str) -> RunKey:
        """The key of the run's records."""
        return RunKey(self.uid, run_id)


@dataclass(frozen=True)
class RuntimePod:
    """One runtime pod, parsed once per version.

    Args:
        index: the index of its partition.
        node: "" while it is not scheduled.
        is_ready: by its readiness probe, and not being deleted.
        ends_at: when its kubelet has to have ended it; None while it is not being deleted.
        has_ended: with success or a failure.
        has_agent: its container runs.
        trouble: why it is not ready, in Kubernetes' words.
        secret_version: version of the runtime's Secret that its kubelet was notified of.
    """

    key: Key
    index: int
    node: str
    is_ready: bool
    ends_at: datetime | None
    has_ended: bool
    has_agent: bool
    trouble: str
    secret_version: str

    @property
    def is_deleting(self) -> bool:
        """The API server has accepted its deletion."""
        return self.ends_at is not None


@dataclass(frozen=True)
class Children:
    """The objects with the names of this set's children, ours or not; None when absent."""

    volume: Object | None = None
    claim: Object | None = None
    secret: Object | None = None
    service: Object | None = None
    stateful_set: Object | None = None
    volume_secret: Object | None = None


def mounts_by_csi(volume: Object | None, has_csi: bool) -> bool:
    """Whether the volume is the CSI driver's, also when that was uninstalled, or will be."""
    return has_csi if volume is None else "csi" in spec_of(volume)


@dataclass(frozen=True)
class ObservedSet:
    """Everything one decision about a SampleSet is made from.

    Args:
        nodes: nodes with the set's label or one of its runtime pods.
        runs: states of the set's runs by run id.
        reports: the latest report of each partition's agent.
        replayed: partitions whose report came with what the bus listed when this service started, or after a
            lost connection: it may be of any age.
        job_keys: the keys of the unfinished sync runs of SampleJobs.
        cache_changes: by SampleJobs that are still there, the oldest first.
        mirrored_at: when the last existing SampleJob began that has left only files of its source; ""
            without one.
        cancelled_runs: ids of the runs that SampleJobs with `spec.terminate` end.
        users: names of other pods that use the claim, looked up only for a set that is being deleted or
            whose runtime is to move; None when that failed.
        are_users_fresh: they were looked up just now, not a few seconds ago.
        unused_since: when a set that is being deleted was first found without users; None while it has some.
        figures_due: enough time has passed since the figures were last written.
        runtime: the runtime's StatefulSet and Secret, in the namespace of the release.
        elsewhere: the set's objects where its runtime is not: in the set's namespace when it has moved.
        other_moving: another set whose runtime moves now.
        are_records_known: False until `runs` and `reports` have all that was on the bus when this service
            started: what is not among them may exist all the same.
        is_runtime_secret_known: False when one of the set's own Secrets could not be read.
        unserved: why, when this service has no rights in the set's namespace, or has them no more.
        troubles: what could not be read.
    """

    sample_set: SampleSet
    engine_secret: SecretSeen = None
    source_secret: SecretSeen = None
    children: Children = Children()
    pods: tuple[RuntimePod, ...] = ()
    nodes: tuple[Object, ...] = ()
    runs: Mapping[str, RunState] = field(default_factory=dict)
    reports: tuple[NodeStatus, ...] = ()
    replayed: frozenset[int] = frozenset()
    job_keys: tuple[RunKeys, ...] = ()
    cache_changes: tuple[CacheChange, ...] = ()
    mirrored_at: str = ""
    cancelled_runs: frozenset[str] = frozenset()
    users: tuple[str, ...] | None = ()
    are_users_fresh: bool = True
    unused_since: datetime | None = None
    has_csi: bool = False
    figures_due: bool = True
    runtime: Key = NO_RUNTIME
    elsewhere: tuple[tuple[str, Object], ...] = ()
    other_moving: str = ""
    are_records_known: bool = True
    is_runtime_secret_known: bool = True
    unserved: Problem | None = None
    troubles: tuple[Trouble, ...] = ()

    @property
    def is_in_old_place(self) -> bool:
        """The runtime is in the set's namespace, where earlier releases created it."""
        found = [pod.key for pod in self.pods]
        if self.children.stateful_set is not None:
            found.append(key_of(self.children.stateful_set))
        return any(key.namespace != self.runtime.namespace for key in found)

    @property
    def mounts_by_csi(self) -> bool:
        """The volume is the CSI driver's, or will be."""
        return mounts_by_csi(self.children.volume, self.has_csi)

    @property
    def obj(self) -> dict[str, Any]:
        """The set as the API server gave it."""
        return dict(self.sample_set.obj)

    @property
    def status(self) -> SetStatus:
        return self.sample_set.status


SetPlan = operator.Plan[SetStatus]
"""The plan for one SampleSet."""
