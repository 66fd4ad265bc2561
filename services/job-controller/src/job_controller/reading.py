"""The parts of an observation, and what each of them remembers."""

from __future__ import annotations

from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import Change


class Reader:
    """Reads one part of the observations of all jobs, and remembers what no object holds.

    A restart of the service forgets this, as the move of a job to another replica does. So the docstring of
    each reader that remembers something describes how it is found again, or what the loss costs.
    """

    reads_ended_jobs = False
    """`read` is also called for jobs that have ended or are being deleted."""

    def heard(self, kind: str, change: Change) -> None:
        """A watched object was added, modified or deleted."""

    def cached(self, seen: Observed) -> Observed:
        """The same with what is in caches."""
        return seen

    async def read(self, seen: Observed) -> Observed:
        """The same with what the API server has to be asked for."""
        return seen

    def recorded(self, seen: Observed, status: JobStatus) -> None:
        """This status was written after that observation."""

    def forget(self, key: Key, job_uid: str) -> None:
        """The job is gone, or belongs to another replica."""
