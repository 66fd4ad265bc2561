"""Changes of the spec that the pods of a running job were not made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from job_controller.core import names
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
    if resized := find_resize(seen):
        return Change(Reason.SCALED, resized)
    return next(filter(None, (feature.change(seen) for feature in seen.features)), None)


def _changed_role(seen: Observed) -> str | None:
    return next((pod.id.role for pod in seen.pods if _is_outdated(pod, seen.job.digests)), None)


def _is_outdated(pod: Pod, digests: Mapping[str, str]) -> bool:
    """Pods that another controller made, or an older one of ours, say nothing of their template."""
    is_known = pod.template.startswith(DIGEST_VERSION)
    return is_known and digests.get(pod.id.role, pod.template) != pod.template


def find_resize(seen: Observed) -> str:
    """Why pods of another number are wanted now, "" when they are not: the pods have met in a world of
    another size, or count on another number of workers."""
    return _elastic_resize(seen) if seen.job.elastic else _resize_of_world(seen)


def _elastic_resize(seen: Observed) -> str:
    wanted = str(seen.job.replicas_of(WORKER))
    former = sorted({pod.elastic_workers for pod in seen.wanted_pods} - {"", wanted})
    if not former:
        return ""
    counted_on = " and ".join(former)
    return f"spec.worker.replicas is now {wanted}; pods counted on {counted_on} by {names.ELASTIC_WORKERS}"


def _resize_of_world(seen: Observed) -> str:
    job = seen.job
    if job.scope is RestartScope.POD or seen.config is None or not seen.has_begun:
        return ""
    told = told_pods(seen.config)
    sizes = {role.name: job.size_of(role.name) for role in job.roles}
    is_resized = any(told.get(role, size) != size for role, size in sizes.items())
    return "the number of pods was changed after they had started" if is_resized else ""
