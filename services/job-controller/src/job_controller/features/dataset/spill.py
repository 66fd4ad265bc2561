"""Whether the workers of a running job run where their data is cached."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from paddlewheel.contracts.conditions import Condition, find
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import KubernetesEvent, shorten

_NAMED = 3
"""Workers that a message names."""


def spill_conditions(seen: Observed, phase: str) -> list[Condition]:
    """None for a job without a place for its workers. Decided when all workers run."""
    aimed = [pod for pod in seen.world_pods if pod.data_node]
    if phase != names.RUNNING or not aimed:
        return []
    away = [pod for pod in aimed if pod.node != pod.data_node]
    where = f"of their partition of SampleSet {seen.job.sample_set}"
    if not away:
        message = f"{len(aimed)} workers run on the node {where}"
        return [Condition(names.CONDITION_DATA_LOCAL, "True", Reason.BESIDE_DATA, message)]
    named = [f"{pod.name} is on {pod.node}, its partition on {pod.data_node}" for pod in away[:_NAMED]]
    more = [f"and {len(away) - _NAMED} more"] if len(away) > _NAMED else []
    message = f"{len(away)} of {len(aimed)} workers run on other nodes than that {where}: " + "; ".join(
        (*named, *more)
    )
    return [Condition(names.CONDITION_DATA_LOCAL, "False", Reason.SPILLED_OVER, shorten(message))]


def spill_events(job: Job, status: JobStatus) -> tuple[KubernetesEvent, ...]:
    """Workers run away from their data, once in each epoch."""
    before, after = (find(s.conditions, names.CONDITION_DATA_LOCAL) for s in (job.status, status))
    if after is None or after.status == "True" or after == before:
        return ()
    return (KubernetesEvent("Normal", after.reason, after.message),)
