"""Which restartPolicy a pod gets."""

from __future__ import annotations

from job_controller.domain.model import Job, Role
from paddlewheel.contracts.crds import WORKER, Network


def restart_policy(job: Job, role: Role) -> str:
    """First match: elastic, the template's own, a worker in the Service network, Never."""
    if job.elastic:
        return "OnFailure"
    own = (role.template.get("spec") or {}).get("restartPolicy")
    if own:
        return str(own)
    by_name = role.name == WORKER and job.network is Network.SERVICE
    return "OnFailure" if by_name else "Never"
