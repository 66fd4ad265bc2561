"""The interface between the core and the features: the core asks each feature that applies to a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from job_controller.core.changes import Change
from job_controller.core.gate import Gate
from job_controller.core.job import Manifest, Role
from job_controller.core.job_status import JobStatus
from job_controller.core.losses import Loss
from job_controller.core.model import Observed, Options
from job_controller.core.pods import Failure, Pod, PodId
from job_controller.core.verdict import Restart
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import Action, KubernetesEvent

Shape = Callable[[Role, PodId, Manifest], None]
"""Changes the manifest of a new pod."""


@dataclass(frozen=True)
class Doubt:
    """The failure of a rank may follow from the loss of these nodes.

    Args:
        losses: the ranks on nodes that are certainly lost.
    """

    nodes: frozenset[str]
    losses: tuple[Loss, ...]


class Feature:
    """A feature of jobs. It overrides the questions that it answers. All others have the answer of a job
    without it.

    `features/__init__.py` has a line for each feature, with the condition under which it applies to a job. A
    feature that does not apply gets no other question.
    """

    # Once in each pass

    def adjusted(self, seen: Observed, options: Options, now: datetime) -> Observed:
        """The observation with the results of rules that several questions need, and with what time alone has
        changed. It includes the time of the next look."""
        return seen

    def next_look(self, seen: Observed, status: JobStatus, now: datetime) -> float | None:
        """Seconds until time alone may change an answer of this feature."""
        return None

    # Whether pods may be created

    def gate(self, seen: Observed) -> Gate | None:
        """A closed gate keeps pods from being created. The first closed gate of all features counts."""
        return None

    def must_wait(self, seen: Observed) -> bool:
        """Children are created in a later pass, though no gate is closed."""
        return False

    def due_pods(
        self, seen: Observed, missing: tuple[PodId, ...], options: Options, now: datetime
    ) -> tuple[PodId, ...]:
        """The missing pods that are created in this pass."""
        return missing

    # The verdict

    def cause_of(self, seen: Observed, pod: Pod, failure: Failure) -> Reason | None:
        """A better cause for the failure of a pod than its status has."""
        return None

    def losses(self, seen: Observed, now: datetime) -> tuple[Loss, ...]:
        """Pods that run and can no longer train."""
        return ()

    def doubt(self, seen: Observed, losses: Sequence[Loss]) -> Doubt | None:
        """The nodes on whose loss the verdict about these losses depends."""
        return None

    def change(self, seen: Observed) -> Change | None:
        """A change that the present pods were not made for."""
        return None

    def eviction(self, seen: Observed) -> Change | None:
        """A change that ends the pods also while the spec of the job is wrong."""
        return None

    def resize(self, seen: Observed, now: datetime) -> Restart | None:
        """A restart with another number of workers."""
        return None

    # The status

    def hindrance(self, seen: Observed) -> Pod | None:
        """The pod that keeps all others from running, with its hindrance."""
        return None

    def why_waiting(self, seen: Observed, status: JobStatus, now: datetime) -> tuple[Reason, str] | None:
        """Reason and message of a job that does not run yet. They count more than those of its pods."""
        return None

    def running_message(self, seen: Observed) -> str:
        """The message of a job that runs, "" for none."""
        return ""

    def recorded(self, seen: Observed, status: JobStatus, now: datetime) -> JobStatus:
        """The status with the fields of this feature."""
        return status

    def conditions(self, seen: Observed, status: JobStatus, now: datetime) -> list[Condition]:
        """The conditions of this feature."""
        return []

    def stuck_on(self, seen: Observed, status: JobStatus, gate: Gate, now: datetime) -> Reason | None:
        """The cause that does not pass by itself."""
        return None

    def events(self, seen: Observed, status: JobStatus, gate: Gate) -> tuple[KubernetesEvent, ...]:
        """Kubernetes Events, each once."""
        return ()

    # Children and metadata

    def annotations(self, seen: Observed, gate: Gate) -> Mapping[str, str | None]:
        """Annotations of the job that are set, or removed by None."""
        return {}

    def children(self, seen: Observed) -> tuple[Action, ...]:
        """Actions before pods are created."""
        return ()

    def updates(self, seen: Observed, *, has_addresses: bool) -> tuple[Action, ...]:
        """Actions on pods that exist, after the others are created.

        Args:
            has_addresses: the ConfigMap has the addresses of all pods.
        """
        return ()

    def pod_shape(self, seen: Observed, options: Options) -> Shape | None:
        """Adds this feature to new pods."""
        return None

    def children_while_gated(self, seen: Observed, gate: Gate, now: datetime) -> tuple[Action, ...]:
        """Actions while a gate is closed."""
        return ()

    def children_when_refused(self, seen: Observed) -> tuple[Action, ...]:
        """Actions while the spec of the job is wrong."""
        return ()

    def children_before_clean_up(self, seen: Observed) -> tuple[Action, ...]:
        """Actions before the pods of a finished job are deleted."""
        return ()

    def needed_before_clean_up(self, seen: Observed, now: datetime) -> tuple[str, ...]:
        """Kinds without which the pods of a finished job are not deleted yet."""
        return ()

    def children_when_finished(self, seen: Observed) -> tuple[Action, ...]:
        """Actions after the pods of a finished job are deleted."""
        return ()

    def holds_deleted_job(self, seen: Observed) -> bool:
        """A deleted job stays until this is False, or its patience is over."""
        return False
