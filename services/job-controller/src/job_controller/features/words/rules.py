"""Words that are accepted with another meaning, as in the original operator, and reported in a condition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from job_controller.core import names
from job_controller.core.model import Job
from paddlewheel.contracts.crds.admission_rules import CLEAN_POD_POLICY, INTRANET
from paddlewheel.contracts.crds.violations import Subject

_CONDITIONS = (
    (names.CONDITION_NETWORK_WORD, INTRANET.rule),
    (names.CONDITION_CLEAN_WORD, CLEAN_POD_POLICY.rule),
)


@dataclass(frozen=True)
class UnknownWord:
    """A condition to show; `message` names the field, what the word means now, and the known words."""

    condition: str
    message: str


def unknown_words(job: Job) -> Iterator[UnknownWord]:
    """Every word of the spec that does not have the meaning it suggests."""
    subject = Subject(job.key.name, job.key.namespace, job.spec)
    for condition, rule in _CONDITIONS:
        if rule.is_true_of(subject):
            yield UnknownWord(condition, rule.text(subject))
