"""PodGroups, and what makes a pod a member of one."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.feature import Shape
from job_controller.core.job import Job, Manifest, Role
from job_controller.core.manifests import child_metadata
from job_controller.core.parts import Gang
from job_controller.core.pods import PodId
from job_controller.features.gang.resources import least_resources
from paddlewheel.contracts.crds.paddlejob import GangKind, SchedulingPolicy


def render_pod_group(job: Job, gang: Gang) -> Manifest:
    """The pods that are scheduled all together or not at all."""
    is_native = gang.kind is GangKind.NATIVE
    native = {"schedulingPolicy": {"gang": {"minCount": gang.least}}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2" if is_native else "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": child_metadata(job, job.key.name, {}),
        "spec": native if is_native else volcano_spec(job, gang),
    }


def volcano_spec(job: Job, gang: Gang) -> Manifest:
    """The spec of a PodGroup of Volcano; without a queue it is put into the default one."""
    policy = job.spec.scheduling_policy or SchedulingPolicy()
    named = {"queue": policy.queue, "priorityClassName": policy.priority_class}
    given = {field: name for field, name in named.items() if name}
    return {"minMember": gang.least, "minResources": least_resources(job), **given}


def pod_shape(job: Job, kind: GangKind) -> Shape:
    """Makes new pods members of the job's gang of this kind."""

    def shape(role: Role, _: PodId, pod: Manifest) -> None:
        if kind is GangKind.NATIVE:
            pod["spec"]["schedulingGroup"] = {"podGroupName": job.key.name}
        if kind is not GangKind.VOLCANO:
            return
        pod["spec"]["schedulerName"] = names.VOLCANO_SCHEDULER
        policy = job.spec.scheduling_policy
        pod["metadata"]["annotations"] |= {
            names.ANNOTATION_GROUP: job.key.name,
            names.VOLCANO_TASK: role.name,
            names.VOLCANO_JOB: job.key.name,
            names.VOLCANO_VERSION: "0",
            names.VOLCANO_QUEUE: policy.queue if policy else "",
        }

    return shape
