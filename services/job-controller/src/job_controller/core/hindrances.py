"""The pod that keeps a job from running."""

from __future__ import annotations

from job_controller.core.model import Observed
from job_controller.core.pods import Pod


def hindered_pod(seen: Observed) -> Pod | None:
    """The first hindered pod of the pods that train together. A pod that keeps all others from running comes
    before it."""
    found = (pod for feature in seen.features if (pod := feature.hindrance(seen)))
    return next(found, next((pod for pod in seen.world_pods if pod.hindrance), None))
