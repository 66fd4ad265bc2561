"""Which waiting pods may start their own containers."""

from __future__ import annotations

from job_controller.domain.model import Job, Observed, Options
from job_controller.domain.pods import Pod
from paddlewheel.contracts.crds import Network


def waits_for_names(job: Job, options: Options) -> bool:
    """In the Service network pods wait by themselves until the others' names resolve."""
    return bool(options.gate_image) and job.network is Network.SERVICE


def waits_for_release(job: Job, options: Options) -> bool:
    """Elsewhere they wait for an annotation; elastic pods have no ConfigMap to wait for."""
    return bool(options.gate_image) and job.network is not Network.SERVICE and not job.elastic


def pods_to_release(seen: Observed, options: Options) -> tuple[Pod, ...]:
    """Names of the pods that still wait; called once every address is in the ConfigMap."""
    job = seen.job
    if not waits_for_release(job, options):
        return ()
    return tuple(p for p in seen.pods if p.id in job.wanted and not p.released and not p.terminating)
