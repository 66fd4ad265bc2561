"""What could never work, although the schema in the cluster may let it through."""

from __future__ import annotations

from job_controller.domain.model import Job
from paddlewheel.contracts.crds import PADDLE_JOB
from paddlewheel.contracts.crds.admission_rules import FOREIGN_SAMPLE_SET, NO_PODS
from paddlewheel.contracts.crds.violations import Subject, find_violations


def find_problems(job: Job) -> tuple[str, ...]:
    """One sentence per problem: the field and the remedy."""
    subject = Subject(job.key.name, job.key.namespace, job.spec)
    refused = (rule.text(subject) for rule in (NO_PODS, FOREIGN_SAMPLE_SET) if rule.is_true_of(subject))
    return (*(str(violation) for violation in find_violations(PADDLE_JOB, subject)), *refused)
