"""The restartPolicy of a pod."""

from __future__ import annotations

from job_controller.core.job import Job, Role
from paddlewheel.contracts.crds import WORKER, Network


def restart_policy(job: Job, role: Role) -> str:
    """First match: elastic, the template's own, a worker in the Service network, Never.

    With rules about failures a failed container is theirs to judge, not restarted in place.
    """
    if job.elastic:
        return "OnFailure"
    own = (role.template.get("spec") or {}).get("restartPolicy")
    if own:
        return str(own)
    by_name = role.name == WORKER and job.network is Network.SERVICE
    has_rules = job.spec.backoff_limit is not None or job.spec.failure_policy is not None
    return "OnFailure" if by_name and not has_rules else "Never"
