"""Looks for the claims of other jobs to host ports."""

from __future__ import annotations

from dataclasses import replace

from job_controller.core import names
from job_controller.core.model import Observed
from job_controller.core.parse import ParseJob
from job_controller.core.parts import PortClaim
from job_controller.core.phase import is_scaled_to_nothing
from job_controller.reading import Reader
from job_controller.watch import BY_HOST_PORT, BY_OWNER, JOB, TAKEN, claimed_port
from paddlewheel.contracts.crds import Network
from paddlewheel.kube.objects import id_of, uid_of
from paddlewheel.kube.ports import Object
from paddlewheel.operator.watch import Watch


class PortClaims(Reader):
    """Claims are in the annotations of jobs."""

    def __init__(self, watch: Watch, parse: ParseJob) -> None:
        self._watch = watch
        self._parse = parse

    def cached(self, seen: Observed) -> Observed:
        jobs, own = self._watch.of(JOB), seen.job
        others = (job for job in jobs.by_index(BY_HOST_PORT, TAKEN) if uid_of(job) != own.uid)
        claims = tuple(_port_claim(job) for job in others if self._needs_ports(job))
        return replace(seen, port_claims=claims, is_reported=jobs.is_reported(own.key))

    def _needs_ports(self, obj: Object) -> bool:
        """The job has pods, or may create some. A user can write the annotation of a claim on any job."""
        if self._watch.of(names.POD).count_by_index(BY_OWNER, id_of(obj)) > 0:
            return True
        job = self._parse(obj)
        if job is None or job.network is not Network.HOST or job.problems:
            return False
        is_idle = job.spec.suspend or is_scaled_to_nothing(job)
        return not (is_idle or job.is_anothers or job.status.final)


def _port_claim(job: Object) -> PortClaim:
    created = str(job["metadata"].get("creationTimestamp", ""))
    return PortClaim(claimed_port(job) or 0, created, uid_of(job))
