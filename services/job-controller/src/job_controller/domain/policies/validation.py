"""What could never work, although the schema in the cluster may let it through."""

from __future__ import annotations

from collections.abc import Iterator

from job_controller.domain import names
from job_controller.domain.model import Job, Network, PodId, Role


def find_problems(job: Job) -> tuple[str, ...]:
    """One sentence per problem: the field and the remedy."""
    return (*_shape(job), *_names(job), *_data(job))


def _shape(job: Job) -> Iterator[str]:
    if not any(r.replicas > 0 for r in job.roles):
        yield "spec: give at least one of ps, worker, heter with replicas of 1 or more"
    for role in job.roles:
        yield from _role(role)


def _role(role: Role) -> Iterator[str]:
    if role.replicas < 0:
        yield f"spec.{role.name}.replicas: {role.replicas} is negative; give 0 or more"
    if not (role.template.get("spec") or {}).get("containers"):
        yield f"spec.{role.name}.template.spec.containers: give at least one container"


def _names(job: Job) -> Iterator[str]:
    name = job.key.name
    longest = max((names.pod_name(name, p.role, p.ordinal) for p in _last_pods(job)), key=len, default="")
    if len(longest) > names.MAX_LABEL:
        spare = names.MAX_LABEL - (len(longest) - len(name))
        yield f"metadata.name: pod names such as {longest} pass 63 characters; use at most {spare}"
    if job.network is Network.SERVICE and longest and not names.is_dns_label(name):
        yield (
            "metadata.name: with spec.intranet Service it may hold only a-z, 0-9 and '-', for Services "
            "are named after it"
        )


def _last_pods(job: Job) -> Iterator[PodId]:
    for role in job.roles:
        if role.replicas > 0:
            yield PodId(role.name, role.replicas - 1)


def _data(job: Job) -> Iterator[str]:
    ref = job.spec.sample_set_ref
    if ref is None:
        return
    if not ref.name:
        yield "spec.sampleSetRef.name: name the SampleSet"
    if not ref.mount_path or ":" in ref.mount_path:
        yield "spec.sampleSetRef.mountPath: give a path without ':', such as /data"
    if ref.namespace and ref.namespace != job.key.namespace:
        yield (
            f"spec.sampleSetRef.namespace: {ref.namespace} is another namespace, where no claim can be "
            f"mounted from; create the job or the SampleSet in the other's namespace"
        )
