"""Words of the spec that are read with another meaning are reported in a condition."""

from __future__ import annotations

from datetime import datetime

from job_controller.core import names
from job_controller.core.feature import Feature
from job_controller.core.model import JobStatus, Observed, Options
from job_controller.features.words.rules import word_conditions
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.crds.admission_rules import CLEAN_POD_POLICY, INTRANET

_CONDITIONS = (names.CONDITION_NETWORK_WORD, names.CONDITION_CLEAN_WORD)


class Words(Feature):
    """Words that the original operator accepts."""

    def applies_to(self, seen: Observed) -> bool:
        spec, status = seen.job.spec, seen.status
        is_unknown = bool(spec.intranet) and spec.intranet not in INTRANET.words
        is_unknown |= bool(spec.clean_pod_policy) and spec.clean_pod_policy not in CLEAN_POD_POLICY.words
        return is_unknown or any(map(status.condition, _CONDITIONS))

    def conditions(
        self, seen: Observed, status: JobStatus, options: Options, now: datetime
    ) -> list[Condition]:
        return word_conditions(seen.job)
