"""The source keys of a SampleJob of type sync."""

from __future__ import annotations

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.names import JobPhase, Reason
from dataset_controller.domain.objects import Object, key_of, reference, spec_of, status_of
from dataset_controller.domain.secrets import source_keys
from dataset_controller.domain.sources import Credentials, Source, choose_keys, parse_source
from paddlewheel.contracts.keys import Key

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


def job_keys(job: Object, secret: Object | None) -> Credentials:
    """Keys of the job's source, empty for a public one.

    Raises:
        Invalid: no Secret is named, it is absent or wrong, or the source's address is.
    """
    source, named = job_source(job) or Source(""), job_secret_key(job)
    if source.keys:
        return source.keys
    if named is None:
        raise Invalid(
            Reason.SECRET_NOT_EXIST,
            "spec.secretRef.name: name the Secret with the source's keys (an empty one for a public source)",
        )
    return choose_keys(source, source_keys(secret, named))


def runs_with_own_keys(job: Object) -> str:
    """Id of the job's unfinished sync run that may need keys in the runtime's Secret, else ""."""
    status = status_of(job)
    is_active = spec_of(job).get("type") == "sync" and status.get("phase") in _ACTIVE
    return str(status.get("jobName") or "") if is_active else ""
