"""SampleSet as values: what was observed, what the status says, what a plan asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dataset_controller.domain.journal import Journal, parse_journal
from dataset_controller.domain.names import SetPhase
from dataset_controller.domain.objects import Object, generation_of, key_of, status_of, uid_of
from dataset_controller.domain.outcome import Plan
from dataset_controller.domain.runs import SetIdentity
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, RunState
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import RunKey


@dataclass(frozen=True)
class RuntimeConfig:
    """What runtime pods are made with."""

    image: str
    nats_url: str
    pull_policy: str = "IfNotPresent"
    settings: Mapping[str, str] = field(default_factory=dict)
    has_bus_certificate: bool = False
    """They enter the bus with the certificate in the set's runtime Secret."""


@dataclass(frozen=True)
class Children:
    """The objects under the names of this set's children, ours or not; None when absent."""

    volume: Object | None = None
    claim: Object | None = None
    secret: Object | None = None
    service: Object | None = None
    stateful_set: Object | None = None


@dataclass(frozen=True)
class JobSource:
    """A SampleJob of the set with the Secret its sync names (None when absent)."""

    job: Object
    secret: Object | None


@dataclass(frozen=True)
class ObservedSet:
    """One SampleSet and everything its plan depends on.

    Args:
        nodes: those that carry the set's label or one of its runtime pods.
        runs: states of the set's runs by run id.
        reports: the latest of each partition's agent.
        users: names of other pods that use the claim; looked up only while deleting.
        figures_due: enough time has passed since the figures were last written.
        bus_certificate: file name to text, with which runtime pods enter the bus.
    """

    obj: Object
    engine_secret: Object | None = None
    source_secret: Object | None = None
    children: Children = Children()
    pods: tuple[Object, ...] = ()
    nodes: tuple[Object, ...] = ()
    runs: Mapping[str, RunState] = field(default_factory=dict)
    reports: tuple[NodeStatus, ...] = ()
    jobs: tuple[JobSource, ...] = ()
    users: tuple[str, ...] = ()
    has_csi: bool = False
    figures_due: bool = True
    bus_certificate: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> Key:
        return key_of(self.obj)

    @property
    def uid(self) -> str:
        return uid_of(self.obj)

    @property
    def identity(self) -> SetIdentity:
        return SetIdentity(self.key.namespace, self.key.name, self.uid)

    @property
    def status(self) -> SetStatus:
        return parse_status(self.obj)

    def run_key(self, run_id: str) -> RunKey:
        """The run's records."""
        return RunKey(self.uid, run_id)


@dataclass(frozen=True)
class SetStatus:
    """The status of the contract (B.6) plus the journal. Figures are texts, as the contract has them."""

    phase: SetPhase = SetPhase.NEW
    sync_job: str = ""
    warmup_job: str = ""
    runtime: Mapping[str, Any] = field(default_factory=dict)
    cache: Mapping[str, str] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)

    def with_journal(self, journal: Journal) -> SetStatus:
        """The same with another journal."""
        return replace(self, journal=journal)

    def render(self) -> dict[str, Any]:
        """For the API server."""
        jobs = {"syncJobName": self.sync_job, "warmupJobName": self.warmup_job}
        return {
            "phase": self.phase.value,
            "runtimeStatus": dict(self.runtime),
            "jobsName": {name: job for name, job in jobs.items() if job},
            "cacheStatus": dict(self.cache),
            **self.journal.render(),
        }


def parse_status(obj: Object) -> SetStatus:
    """Read `status`; an unknown phase starts the path anew."""
    raw = status_of(obj)
    jobs = raw.get("jobsName") or {}
    phase = str(raw.get("phase") or "")
    return SetStatus(
        SetPhase(phase) if phase in set(SetPhase) else SetPhase.NEW,
        str(jobs.get("syncJobName") or ""),
        str(jobs.get("warmupJobName") or ""),
        dict(raw.get("runtimeStatus") or {}),
        dict(raw.get("cacheStatus") or {}),
        parse_journal(raw, generation_of(obj)),
    )


SetPlan = Plan[SetStatus]
"""What to do about one SampleSet."""
