"""Words that are accepted with another meaning, as in the original operator, and reported in a condition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from job_controller.core import names
from job_controller.core.job import Job
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.crds.admission_rules import CLEAN_POD_POLICY, INTRANET
from paddlewheel.contracts.crds.violations import Subject
from paddlewheel.contracts.reasons import Reason

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


def word_conditions(job: Job) -> list[Condition]:
    """A condition for each of these words, and for each that was corrected."""
    unknown = {w.condition: w.message for w in unknown_words(job)}
    raised = [Condition(type_, "True", Reason.UNKNOWN_WORD, message) for type_, message in unknown.items()]
    corrected = [
        Condition(type_, "False", Reason.WORD_KNOWN)
        for type_, _ in _CONDITIONS
        if type_ not in unknown and job.status.condition(type_)
    ]
    return raised + corrected
