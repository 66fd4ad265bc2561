"""What could never work, although the schema in the cluster may let it through."""

from __future__ import annotations

from job_controller.domain.model import Job
from paddlewheel.contracts.crds import PADDLE_JOB
from paddlewheel.contracts.crds.admission_rules import FOREIGN_SAMPLE_SET
from paddlewheel.contracts.crds.violations import Subject, find_violations


def find_problems(job: Job) -> tuple[str, ...]:
    """One sentence per problem: the field and the remedy."""
    subject = Subject(job.key.name, job.key.namespace, job.spec)
    refused = (FOREIGN_SAMPLE_SET.text(subject),) if FOREIGN_SAMPLE_SET.is_true_of(subject) else ()
    return (*(str(violation) for violation in find_violations(PADDLE_JOB, subject)), *refused)
