"""The numeric results of a finished job."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from job_controller.domain import names
from job_controller.domain.model import Observed
from job_controller.domain.pods import Pod, PodId, PodState
from paddlewheel.contracts.crds import WORKER

_FIRST = PodId(WORKER, 0)


def decide_results(seen: Observed, phase: str) -> Mapping[str, float]:
    """Those of worker 0 once it has succeeded, for its pod may be gone at the end; none of a failed job."""
    if phase == names.FAILED:
        return {}
    is_done = (pod for pod in seen.known_pods if pod.id == _FIRST and pod.state is PodState.SUCCEEDED)
    if first := next(is_done, None):
        return read_results((first,))
    if phase == names.COMPLETED and _FIRST not in seen.succeeded:
        return read_results(seen.pods)
    return seen.status.results


def read_results(pods: tuple[Pod, ...]) -> Mapping[str, float]:
    """Numeric members of the JSON object in worker 0's termination message (or the first pod's)."""
    source = next((p for p in pods if p.id == _FIRST), pods[0] if pods else None)
    try:
        content = json.loads(source.termination_message) if source else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {str(k): float(v) for k, v in sorted(content.items()) if _is_number(v)}


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        # A whole number beyond every float.
        return False
