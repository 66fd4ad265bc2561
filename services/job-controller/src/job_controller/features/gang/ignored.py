"""The report that a part of the user's wish for a gang has no effect."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.parts import Gang
from paddlewheel.contracts.conditions import Condition, find
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import KubernetesEvent, shorten


def gang_conditions(job: Job, gang: Gang) -> list[Condition]:
    """Whether all of the job's wish for a gang has an effect. Nothing for a job whose wish always had one."""
    if gang.ignored:
        message = shorten(gang.ignored)
        return [Condition(names.CONDITION_POLICY_IGNORED, "True", Reason.WITHOUT_EFFECT, message)]
    if job.status.condition(names.CONDITION_POLICY_IGNORED) != "True":
        return []
    return [Condition(names.CONDITION_POLICY_IGNORED, "False", Reason.IN_EFFECT)]


def gang_events(job: Job, gang: Gang) -> tuple[KubernetesEvent, ...]:
    """A part of the wish for a gang has no effect, once."""
    before = find(job.status.conditions, names.CONDITION_POLICY_IGNORED)
    is_known = before is not None and (before.status, before.message) == ("True", gang.ignored)
    if not gang.ignored or is_known:
        return ()
    return (KubernetesEvent("Warning", Reason.WITHOUT_EFFECT, gang.ignored),)
