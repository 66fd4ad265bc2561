"""The parts of an observation, and what each of them remembers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from job_controller.core.parse import ParseJob
from job_controller.core.pods import Pod
from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.kube.ports import Change, Cluster
from paddlewheel.operator.domain.plan import Applied
from paddlewheel.operator.reads import Reads
from paddlewheel.operator.watch import Watch


@dataclass(frozen=True)
class Sources:
    """The sources of all readers.

    Args:
        cluster: for objects that are not watched.
        reads: backs off for objects that cannot be read.
        parse_job: None for a job that cannot be parsed.
        pods_of: the pods of a job.
        gate_url: where the gates of pods ask, "" without gates.
    """

    watch: Watch
    cluster: Cluster
    reads: Reads
    clock: Clock
    parse_job: ParseJob
    pods_of: Callable[[Job], Iterable[Pod]]
    gate_url: str


class Reader:
    """Reads one part of the observations of all jobs, and remembers what no object holds.

    A restart of the service forgets this, as the move of a job to another replica does. So the docstring of
    each reader that remembers something describes how it is found again, or what the loss costs.
    """

    reads_ended_jobs = False
    """`read` is also called for jobs that have ended or are being deleted."""

    def heard(self, kind: str, change: Change) -> None:
        """A watched object was added, modified or deleted."""

    def received(self, delivery: Delivery) -> None:
        """A fact of another service has come."""

    def cached(self, seen: Observed) -> Observed:
        """The same with what is in caches."""
        return seen

    async def read(self, seen: Observed) -> Observed:
        """The same with what the API server has to be asked for."""
        return seen

    def applied(self, seen: Observed, applied: Applied) -> None:
        """The actions of the pass with that observation were tried."""

    def recorded(self, seen: Observed, status: JobStatus) -> None:
        """This status was written after that observation."""

    def forget(self, key: Key, job_uid: str) -> None:
        """The job is gone, or belongs to another replica."""
