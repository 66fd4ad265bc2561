"""Changes of the spec that the pods of a running job were not made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from job_controller.core.environment import told_pods
from job_controller.core.job import DIGEST_VERSION
from job_controller.core.model import Observed
from job_controller.core.pods import Pod
from paddlewheel.contracts.crds import WORKER
from paddlewheel.contracts.crds.paddlejob import RestartScope
from paddlewheel.contracts.reasons import Reason


@dataclass(frozen=True)
class Change:
    """The reason for which all pods are replaced though none has failed."""

    cause: Reason
    message: str


def find_change(seen: Observed) -> Change | None:
    """The first change that the present pods were not made for."""
    if not seen.pods:
        return None
    if seen.job.spec.suspend:
        return Change(Reason.SUSPENDED, "spec.suspend is set")
    if any(pod.restart != seen.job.restart_request for pod in seen.pods if pod.template):
        return Change(Reason.RESTART_REQUESTED, "the annotation paddlepaddle.org/restart was set")
    if changed := _changed_role(seen):
        return Change(Reason.TEMPLATE_CHANGED, f"the template of spec.{changed} was changed")
    if is_resized(seen):
        return Change(Reason.SCALED, "the number of pods was changed after they had started")
    return next(filter(None, (feature.change(seen) for feature in seen.features)), None)


def _changed_role(seen: Observed) -> str | None:
    return next((pod.id.role for pod in seen.pods if _is_outdated(pod, seen.job.digests)), None)


def _is_outdated(pod: Pod, digests: Mapping[str, str]) -> bool:
    """Pods that another controller made, or an older one of ours, say nothing of their template."""
    is_known = pod.template.startswith(DIGEST_VERSION)
    return is_known and digests.get(pod.id.role, pod.template) != pod.template


def is_resized(seen: Observed) -> bool:
    """The pods have met, in a world of another size than is wanted now, or count on another number."""
    job = seen.job
    if job.elastic:
        counted_on = {pod.elastic_workers for pod in seen.wanted_pods} - {""}
        return bool(counted_on - {str(job.replicas_of(WORKER))})
    if job.scope is RestartScope.POD or seen.config is None or not seen.has_begun:
        return False
    told = told_pods(seen.config)
    sizes = {role.name: job.size_of(role.name) for role in job.roles}
    return any(told.get(role, size) != size for role, size in sizes.items())
