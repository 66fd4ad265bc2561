"""Which restartPolicy a pod gets."""

from __future__ import annotations

from job_controller.domain import names
from job_controller.domain.model import JobSpec, Network, RoleSpec


def restart_policy(spec: JobSpec, role: RoleSpec) -> str:
    """First match: elastic, the template's own word, a worker in the Service network, Never."""
    if spec.elastic:
        return "OnFailure"
    own = (role.template.get("spec") or {}).get("restartPolicy")
    if own:
        return str(own)
    by_name = role.role == names.WORKER and spec.network is Network.SERVICE
    return "OnFailure" if by_name else "Never"
