"""The source and its keys of a SampleJob of type sync."""

from __future__ import annotations

from dataset_controller.domain.invalid import Invalid, Problem
from dataset_controller.domain.names import JobPhase
from dataset_controller.domain.samplejob.model import SampleJob
from dataset_controller.domain.secrets import SecretSeen, is_taken_back, secret_key, source_keys
from dataset_controller.domain.sources import (
    Credentials,
    RunKeys,
    Source,
    choose_keys,
    parse_source,
    unread_keys,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason

SYNC = "sync"
_ACTIVE = (JobPhase.PENDING, JobPhase.RUNNING)


def job_secret_key(job: SampleJob) -> Key | None:
    """`spec.secretRef`, by default in the job's namespace."""
    return secret_key(job.spec.secret_ref, job.key.namespace)


def job_source(job: SampleJob) -> Source | None:
    """`spec.syncOptions.source`, None when the set's own is meant.

    Raises:
        Invalid: not an address one can sync from.
    """
    options = job.spec.sync_options
    return parse_source(options.source, "spec.syncOptions.source") if options and options.source else None


def job_keys(job: SampleJob, secret: SecretSeen) -> Credentials:
    """Keys of the job's source, empty for a public one.

    Raises:
        Invalid: no Secret is named, it is absent, invalid or not to be used, or the source's address is.
    """
    source, named = job_source(job) or Source(""), job_secret_key(job)
    if source.keys:
        return source.keys
    if named is None:
        raise Invalid(
            Reason.SECRET_NOT_FOUND,
            "spec.secretRef.name: name the Secret with the source's keys (an empty one for a public source)",
        )
    return choose_keys(source, source_keys(secret, named, "spec.secretRef"))


def unread_keys_of(job: SampleJob, secret: SecretSeen, of_set: Source | None) -> str:
    """What is said of keys without effect, "" also of a job that is invalid.

    Args:
        of_set: the source of the set, which is meant where the job names none.
    """
    try:
        own = job_source(job)
        if job.spec.type != SYNC or not job_keys(job, secret):
            return ""
    except Invalid:
        return ""
    source = own or of_set or Source("")
    is_in_address = own is not None and bool(own.keys)
    place = "spec.syncOptions.source" if is_in_address else f"Secret {job_secret_key(job)}"
    return unread_keys(source.scheme, place)


def has_keys(job: SampleJob) -> bool:
    """The runtime's Secret must contain keys for the job's unfinished sync."""
    return job.type == SYNC and job.status.phase in _ACTIVE and bool(job.status.run_id)


def run_keys(job: SampleJob, secret: SecretSeen) -> RunKeys | None:
    """What the runtime's Secret must contain for the job's unfinished sync; None when it has none.

    A job whose Secret is invalid reports that itself.
    """
    if not has_keys(job):
        return None
    try:
        return RunKeys(job.status.run_id, job_keys(job, secret))
    except Invalid:
        return RunKeys(job.status.run_id, Credentials() if is_taken_back(secret) else None)


def problem_of_keys(job: SampleJob, secret: SecretSeen) -> Problem | None:
    """Why the keys of the job's unfinished sync cannot be read; it goes on with those that it has."""
    try:
        if has_keys(job):
            job_keys(job, secret)
    except Invalid as invalid:
        return invalid.problem
    return None
