"""Gates that could not ask whether their pods may start, and let them start without an answer."""

from __future__ import annotations

from job_controller.domain import names
from job_controller.domain.model import Observed
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import shorten

_WHAT_TO_DO = (
    "let pods of this namespace connect to the Service job-controller, as in their NetworkPolicies, or set"
    " jobController.gate.enabled to false"
)


def gate_conditions(seen: Observed, phase: str) -> list[Condition]:
    """Nothing for a job whose gates have always got an answer."""
    failed = next((pod for pod in seen.world_pods if pod.gate_failure), None)
    if failed is not None:
        why = f"the gate of pod {failed.name} started the pod without an answer ({failed.gate_failure})"
        message = shorten(f"{why}; {_WHAT_TO_DO}")
        return [Condition(names.CONDITION_GATE_UNANSWERED, "True", Reason.GATE_UNANSWERED, message)]
    has_recovered = (
        phase == names.RUNNING and seen.status.condition(names.CONDITION_GATE_UNANSWERED) == "True"
    )
    return [Condition(names.CONDITION_GATE_UNANSWERED, "False", Reason.RECOVERED)] if has_recovered else []
