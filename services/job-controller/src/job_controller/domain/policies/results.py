"""The numbers a finished job leaves behind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from job_controller.domain import names
from job_controller.domain.model import Pod, PodId


def read_results(pods: tuple[Pod, ...]) -> Mapping[str, float]:
    """Numeric members of the JSON object in worker 0's termination message (or the first pod's)."""
    teller = next((p for p in pods if p.id == PodId(names.WORKER, 0)), pods[0] if pods else None)
    try:
        told = json.loads(teller.termination_message) if teller else {}
    except ValueError:
        return {}
    if not isinstance(told, dict):
        return {}
    return {str(k): float(v) for k, v in sorted(told.items()) if _is_number(v)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
