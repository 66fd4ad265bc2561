"""Which pods' last lines are kept when a finished job's pods are deleted, and how much of them."""

from __future__ import annotations

from collections.abc import Mapping

from job_controller.domain.model import Observed
from job_controller.domain.pods import Pod
from job_controller.domain.policies.clean_up import deletes_children

LINES = 200
BYTES = 16 * 1024
"""Kept of each pod at most."""
PODS = 32
"""With `BYTES` this is half of what a ConfigMap holds."""
_CUT = "[...]\n"


def pods_to_read(seen: Observed) -> tuple[Pod, ...]:
    """Failed pods first, then by rank."""
    job = seen.job
    if not (job.status.final and deletes_children(job.spec.clean_pod_policy, job.status.phase)):
        return ()
    pods = [pod for pod in seen.pods if not pod.terminating]
    return tuple(sorted(pods, key=lambda pod: (pod.failure is None, pod.id))[:PODS])


def kept(logs: Mapping[str, str]) -> dict[str, str]:
    """The data of the ConfigMap, from the end of each pod's log; pods that wrote nothing are left out."""
    return {pod: _end_of(text) for pod, text in logs.items() if text}


def _end_of(text: str) -> str:
    raw = text.encode()
    if len(raw) <= BYTES:
        return text
    whole_lines = raw[-BYTES:].partition(b"\n")[2] or raw[-BYTES:]
    return _CUT + whole_lines.decode(errors="ignore")
