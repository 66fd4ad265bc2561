"""Parts of an observation that only some features use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import Any

from paddlewheel.contracts.conditions import Conditions
from paddlewheel.contracts.crds.paddlejob import (
    GangKind,
)


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
    """The fields of a data set that matter to its jobs."""

    phase: str
    partitions: int
    message: str = ""
    reason: str = ""
    nodes: Mapping[int, str] = field(default_factory=dict)
    """Names of nodes by partition."""
    cached: Mapping[int, int] = field(default_factory=dict)
    """By partition, what its node has cached, in percent of the partition's share of the set."""
    lost_mounts: Mapping[str, LostMount] = field(default_factory=dict)
    """Lost mounts by node."""
    mounted: int = 0
    """Partitions that have it mounted."""

    @property
    def is_ready(self) -> bool:
        return self.phase == "Ready"

    @property
    def is_well(self) -> bool:
        """Nothing has to be checked until the next fact. A set may be ready on other nodes again,
        with pods left where it was."""
        return self.is_ready and not self.lost_mounts

    @cached_property
    def fullest(self) -> tuple[int, ...]:
        """Partitions by what is cached, the fullest first, without partitions that have not reported."""
        told = (partition for partition in self.cached if partition < self.partitions)
        return tuple(sorted(told, key=lambda partition: (-self.cached[partition], partition)))


@dataclass(frozen=True)
class Rivals:
    """The pods of other jobs on the nodes that this job might grow on.

    Args:
        need: pods that train wait for a node, or will in a moment, for their job is between two epochs.
        refused: a scheduler has found no node for some of these pods.
        grow: workers have found a node for which their job is about to restart.
        look: workers beyond the workers that train look for room.
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
    """The state of the job in Kueue.

    Args:
        version: its resourceVersion.
        digest: a digest of its inputs.
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
    """The nodes of a ResourceFlavor of Kueue."""

    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class PortBlock:
    """The block of ports that a job is to claim.

    Args:
        port: its first port; None claims nothing.
        is_firm: no other job can have it, so pods may use it.
        is_exhausted: pods wait until another job leaves a block.
    """

    port: int | None = None
    is_firm: bool = True
    is_exhausted: bool = False


@dataclass(frozen=True)
class Gang:
    """How the pods of a job are scheduled.

    Args:
        least: how many pods are scheduled all together or not at all.
        why: it is of this kind.
        ignored: the part of the user's wish without effect, why, and what to do; "" for none.
    """

    kind: GangKind = GangKind.NONE
    least: int = 0
    why: str = ""
    ignored: str = ""
