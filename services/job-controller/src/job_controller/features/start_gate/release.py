"""The release of pods that wait at their gates."""

from __future__ import annotations

from job_controller.core.job import Job
from job_controller.core.model import Observed, Options
from job_controller.core.pods import Pod, PodId
from paddlewheel.contracts.crds import Network


def waits_for_names(job: Job, options: Options) -> bool:
    """Pods in the Service network wait until the names of the others resolve."""
    return bool(options.gate_image) and job.network is Network.SERVICE


def waits_for_release(job: Job, options: Options) -> bool:
    """Elsewhere they wait until the ConfigMap names them; elastic pods have none to wait for."""
    return bool(options.gate_image) and job.network is not Network.SERVICE and not job.elastic


_NO_NAME = "waits-for-room.invalid"
"""Never resolves: a worker beyond the workers that train is not started."""


def awaited_names(job: Job, pod: PodId) -> str:
    """The names that this pod waits for, separated by spaces."""
    return job.unfinished_names[pod.role] if job.trains(pod) else _NO_NAME


def pods_to_tell(seen: Observed) -> tuple[Pod, ...]:
    """Pods that wait for names of which some are wanted no more, or have come since."""
    job = seen.job
    waiting = [pod for pod in seen.pods if pod.waits_for and pod.id in job.wanted and not pod.terminating]
    return tuple(pod for pod in waiting if pod.waits_for != awaited_names(job, pod.id))


def pods_to_release(seen: Observed) -> tuple[Pod, ...]:
    """Pods that still wait for an annotation. Called once every address is in the ConfigMap."""
    return tuple(p for p in seen.world_pods if p.awaits_release and not p.released and not p.terminating)
