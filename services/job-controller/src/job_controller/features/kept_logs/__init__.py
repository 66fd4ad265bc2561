"""The last lines of pods are kept when `cleanPodPolicy` deletes the pods."""

from __future__ import annotations

from datetime import datetime

from job_controller.core import names
from job_controller.core.feature import Feature
from job_controller.core.job import Job, Manifest
from job_controller.core.manifests import child_metadata
from job_controller.core.model import Observed
from job_controller.features.kept_logs.rules import is_patience_over, kept
from paddlewheel.contracts.job_names import kept_logs_name
from paddlewheel.operator.domain.plan import Action, Create


class KeptLogs(Feature):
    """A ConfigMap with the last lines of some pods of a finished job."""

    def children_before_clean_up(self, seen: Observed) -> tuple[Action, ...]:
        data = kept(seen.logs)
        return (Create(names.KEPT_LOGS, _render(seen.job, data)),) if data else ()

    def needed_before_clean_up(self, seen: Observed, now: datetime) -> tuple[str, ...]:
        return () if is_patience_over(seen.job, now) else (names.KEPT_LOGS,)


def _render(job: Job, data: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(job, kept_logs_name(job.key.name), {}),
        "data": data,
    }
