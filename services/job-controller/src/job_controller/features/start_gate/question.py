"""The question of a pod's gate whether the pod may start, and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from job_controller.core.environment import epoch_of, told_host
from job_controller.core.job import Job
from job_controller.core.pods import PodId
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


def may_start(question: Question, config: Mapping[str, str]) -> bool:
    """The job's ConfigMap is of the pod's epoch and names the pod at its place by its present address.

    It is written once all addresses of a world are known, so then the pod can reach all others.
    """
    return epoch_of(config) == question.epoch and told_host(config, question.pod) == question.ip
