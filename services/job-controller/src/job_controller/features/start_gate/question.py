"""The question of a pod's gate whether the pod may start, and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from job_controller.core.environment import epoch_of, told_host
from job_controller.core.job import Job
from job_controller.core.pods import PodId
from paddlewheel.contracts.crds import Network
from paddlewheel.contracts.keys import Key

PATH = "/v1/gate/"


@dataclass(frozen=True)
class Question:
    """May this pod start? `uid` is the job's, `ip` the pod's address."""

    job: Key
    uid: str
    epoch: int
    pod: PodId
    ip: str


def gate_address(url: str, job: Job, pod: PodId) -> str:
    """The address that the gate of this pod asks, without the pod's own address."""
    place = "/".join(map(quote, (job.key.namespace, job.key.name, pod.role, str(pod.ordinal))))
    return f"{url.rstrip('/')}{PATH}{place}?{urlencode({'uid': job.uid, 'epoch': job.status.epoch})}"


def names_to_resolve(question: Question, job: Job, config: Mapping[str, str]) -> tuple[str, ...] | None:
    """The names that the pod has to resolve before it starts, None while it may not start.

    In the network Service, a pod that trains waits for the names of its own role. Elsewhere the ConfigMap is
    of the pod's epoch and has the pod's present address at its place. It is written once all addresses of a
    world are known, so then the pod can reach all others.

    Args:
        config: the data of the job's ConfigMap, empty when there is none.
    """
    pod = question.pod
    if job.network is Network.SERVICE:
        is_due = job.status.epoch == question.epoch and job.trains(pod)
        return job.unfinished_names[pod.role] if is_due else None
    has_address = bool(config) and told_host(config, pod) == question.ip
    return () if has_address and epoch_of(config) == question.epoch else None
