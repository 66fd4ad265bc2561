"""The source keys of a SampleJob of type sync: its own, or none of its own."""

from __future__ import annotations

from paddlewheel.contracts.keys import Key

from dataset_controller.domain.names import JobPhase
from dataset_controller.domain.objects import Object, key_of, reference, spec_of, status_of
from dataset_controller.domain.secrets import source_keys
from dataset_controller.domain.sources import Credentials, Source, choose_keys, parse_source

_ACTIVE = (JobPhase.PENDING, JobPhase.RUNNING)


def job_secret_key(job: Object) -> Key | None:
    """`spec.secretRef`, by default in the job's namespace."""
    return reference(job, "secretRef", key_of(job).namespace)


def job_source(job: Object) -> Source | None:
    """`spec.syncOptions.source`, None when the set's own is meant.

    Raises:
        Invalid: not an address one can sync from.
    """
    uri = (spec_of(job).get("syncOptions") or {}).get("source")
    return parse_source(str(uri), "spec.syncOptions.source") if uri else None


def job_keys(job: Object, secret: Object | None) -> Credentials | None:
    """Keys that belong to this job alone; None when it uses the set's own.

    Raises:
        Invalid: the named Secret is absent or wrong, or the source's address is.
    """
    source, named = job_source(job), job_secret_key(job)
    if named is not None:
        return choose_keys(source or Source(""), source_keys(secret, named))
    return source.keys if source and source.keys else None


def runs_with_own_keys(job: Object) -> str:
    """Id of the job's unfinished sync run that may need keys in the runtime's Secret, else ""."""
    status = status_of(job)
    if spec_of(job).get("type") != "sync" or status.get("phase") not in _ACTIVE:
        return ""
    return str(status.get("jobName") or "") if _has_own_keys(job) else ""


def _has_own_keys(job: Object) -> bool:
    return job_secret_key(job) is not None or bool((spec_of(job).get("syncOptions") or {}).get("source"))
