"""The features of jobs, a folder for each. Features do not import each other.

To add a feature, add its folder and its line in the list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from job_controller.core import names
from job_controller.core.feature import Feature
from job_controller.core.model import Observed
from job_controller.core.phase import is_scaled_to_nothing
from job_controller.features.dataset import DataSet
from job_controller.features.dataset.observe import SampleSets
from job_controller.features.elastic import Elastic
from job_controller.features.elastic.observe import HeldRanks, RoomOfOthers
from job_controller.features.gang import Gangs
from job_controller.features.host_ports import HostPorts
from job_controller.features.host_ports.observe import PortClaims
from job_controller.features.kept_logs import KeptLogs
from job_controller.features.kept_logs.observe import LastLines
from job_controller.features.kueue import Kueue
from job_controller.features.kueue.observe import QueueObjects
from job_controller.features.progress import Progress
from job_controller.features.silent_nodes import SilentNodes
from job_controller.features.silent_nodes.observe import NodeLeases
from job_controller.features.start_gate import StartGate
from job_controller.features.start_gate.observe import OpenGates, OwnAddress
from job_controller.features.stuck import Stuck
from job_controller.features.stuck.observe import PodEvents, Schedulers
from job_controller.features.suspension import Suspension
from job_controller.features.words import Words
from job_controller.reading import Reader, Sources
from paddlewheel.contracts.crds import WORKER, Network
from paddlewheel.contracts.crds.admission_rules import CLEAN_POD_POLICY, INTRANET
from paddlewheel.contracts.crds.paddlejob import GangKind


def is_suspended(seen: Observed) -> bool:
    """The job gets no pods now, or was suspended until now."""
    return seen.job.spec.suspend or _has(seen, names.CONDITION_SUSPENDED) or is_scaled_to_nothing(seen.job)


def is_not_smooth(seen: Observed) -> bool:
    """Some pod does not run yet, or no longer."""
    return not seen.runs_smoothly


def reports_progress(seen: Observed) -> bool:
    """The job has new pods, which may report progress, or has reported before."""
    return is_not_smooth(seen) or seen.status.progress is not None or _has(seen, names.CONDITION_STALLED)


def has_data_set(seen: Observed) -> bool:
    """The pods mount a SampleSet."""
    return seen.job.sample_set is not None


def uses_host_ports(seen: Observed) -> bool:
    """The pods are on the hosts' network."""
    return seen.job.network is Network.HOST


def is_queued(seen: Observed) -> bool:
    """Kueue decides about the job."""
    return seen.workload is not None or (seen.has_kueue and bool(seen.job.queue))


def has_gates(seen: Observed) -> bool:
    """Some pod may wait at its gate, or a gate got no answer."""
    return is_not_smooth(seen) or bool(seen.status.condition(names.CONDITION_GATE_UNANSWERED))


def has_unknown_words(seen: Observed) -> bool:
    """A word is not in the list of its field, or was not until now."""
    spec, known = seen.job.spec, seen.status.condition
    is_unknown = spec.intranet not in ("", *INTRANET.words)
    is_unknown |= spec.clean_pod_policy not in ("", *CLEAN_POD_POLICY.words)
    return is_unknown or bool(known(names.CONDITION_NETWORK_WORD) or known(names.CONDITION_CLEAN_WORD))


def is_in_gang(seen: Observed) -> bool:
    """The job asks for a gang or has one, or the installation demands one for every job."""
    asks = bool(seen.job.spec.scheduling_policy) or names.VOLCANO_SCHEDULER in seen.job.schedulers
    has = bool(seen.pod_groups) or seen.status.gang is not None
    is_demanded = seen.gang_scheduling == GangKind.VOLCANO
    return asks or has or is_demanded or _has(seen, names.CONDITION_POLICY_IGNORED)


def is_elastic(seen: Observed) -> bool:
    """The job can train with fewer workers than it wants."""
    return seen.job.least_workers < seen.job.replicas_of(WORKER)


def has_failed_rank(seen: Observed) -> bool:
    """A program has ended with an error."""
    return any(pod.failure or pod.program_end for pod in seen.known_pods)


def has_ended(seen: Observed) -> bool:
    """The job has succeeded or failed."""
    return seen.status.final


def _has(seen: Observed, condition: str) -> bool:
    return seen.status.condition(condition) == "True"


def no_readers(_: Sources) -> tuple[Reader, ...]:
    """The feature is decided from what is watched."""
    return ()


class Listed(NamedTuple):
    """A feature, the condition under which it applies to a job, and its readers."""

    applies_to: Callable[[Observed], bool]
    feature: Feature
    readers: Callable[[Sources], tuple[Reader, ...]] = no_readers


FEATURES = (
    Listed(is_suspended, Suspension()),
    Listed(is_not_smooth, Stuck(), lambda s: (PodEvents(s.cluster, s.clock), Schedulers(s.cluster, s.clock))),
    Listed(reports_progress, Progress()),
    Listed(has_data_set, DataSet(), lambda s: (SampleSets(s.cluster, s.reads),)),
    Listed(uses_host_ports, HostPorts(), lambda s: (PortClaims(s.watch, s.parse_job),)),
    Listed(is_queued, Kueue(), lambda s: (QueueObjects(s.cluster, s.reads),)),
    Listed(has_gates, StartGate(), lambda s: (OpenGates(s.clock), OwnAddress(s.gate_url, s.clock))),
    Listed(has_unknown_words, Words()),
    Listed(is_in_gang, Gangs()),
    Listed(
        is_elastic,
        Elastic(),
        lambda s: (RoomOfOthers(s.watch, s.clock, s.parse_job, s.pods_of), HeldRanks(s.clock)),
    ),
    Listed(has_failed_rank, SilentNodes(), lambda s: (NodeLeases(s.cluster, s.clock),)),
    Listed(has_ended, KeptLogs(), lambda s: (LastLines(s.cluster),)),
)
"""The order in which features read and are asked. Kueue and gangs come after the other gates, so that no
place in a queue is taken before pods can be created."""


def with_features(seen: Observed) -> Observed:
    """The same observation with the features that apply to the job."""
    return replace(seen, features=tuple(f.feature for f in FEATURES if f.applies_to(seen)))
