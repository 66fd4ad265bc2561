"""SampleJob, batch.paddlepaddle.org/v1alpha1: one operation on a SampleSet's data or cache."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict

from paddlewheel.contracts.crds.base import (
    CrdModel,
    Rule,
    int32,
    is_as_before,
    needs,
    rule,
    rules,
    says,
)
from paddlewheel.contracts.crds.common import CommonStatus, SecretReference
from paddlewheel.contracts.crds.operations import OPERATIONS, WORDS, OperationOptions

# The finalizer paddlepaddle.org/samplejob-<name> allows 63 characters after the slash.
JOB_NAME_LENGTH = 53
JOBS_BEFORE = 32
"""Jobs that one may wait for."""
CANCELLED_RUNS = 256
"""Runs that a job with spec.terminate ends at a time; those beyond go on."""
_TYPES = f"{', '.join(WORDS[:-1])} or {WORDS[-1]}."


class SampleSetName(CrdModel):
    """A SampleSet in the same namespace."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".name", "sampleSetRef.name is required: name a SampleSet in this namespace")
        )
    )

    name: Annotated[str, says("Name of the SampleSet.", minLength=1)] = ""


class SampleJobSpec(OperationOptions):
    """The operation and its SampleSet."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".type", f"spec.type is required: one of {', '.join(WORDS)}"),
            needs(".sampleSetRef", "spec.sampleSetRef is required: name a SampleSet in this namespace"),
            rule(
                "!has(self.type) || self.type != 'sync'"
                " || (has(self.secretRef) && has(self.secretRef.name) && self.secretRef.name != '')",
                "spec.secretRef.name is required for sync: name the Secret with the source's credentials"
                " (it may be without keys for a public bucket)",
                lambda spec: spec.type != "sync" or bool(spec.secret_ref and spec.secret_ref.name),
                field=".secretRef.name",
                reason="FieldValueRequired",
            ),
            rule(
                "!has(self.type) || self.type != 'rmr' || has(self.rmrOptions)",
                "spec.rmrOptions.paths is required for rmr: name the paths to remove",
                lambda spec: spec.type != "rmr" or spec.rmr_options is not None,
                field=".rmrOptions.paths",
                reason="FieldValueRequired",
            ),
        )
    )

    type: Annotated[str, says(_TYPES, enum=list(WORDS))] = ""
    sample_set_ref: Annotated[SampleSetName | None, says("The SampleSet to operate on.")] = None
    secret_ref: Annotated[SecretReference | None, says("Credentials of the source; needed for sync.")] = None
    terminate: Annotated[bool, says("Cancel running and waiting operations on this set first.")] = False
    priority: Annotated[
        int,
        int32(
            "Of jobs of a set that cannot run at the same time, the one with the higher priority runs first;"
            " then the older one."
        ),
    ] = 0
    after: Annotated[
        tuple[Annotated[str, says("Name of a SampleJob.", minLength=1, maxLength=JOB_NAME_LENGTH)], ...],
        says(
            "SampleJobs of the same namespace and SampleSet that have to succeed before this one runs; when"
            " one fails, is cancelled, or does not exist a minute after this one's creation, this one fails.",
            maxItems=JOBS_BEFORE,
        ),
    ] = ()
    ttl_seconds_after_finished: Annotated[
        int | None, int32("Seconds after its end at which the job is deleted; default: never.", minimum=0)
    ] = None


class SampleJobProgress(CrdModel):
    """Progress of the run, exact to the acknowledged chunk."""

    files_done: Annotated[int, says("Files finished.", format="int64")] = 0
    files_total: Annotated[int, says("Files found so far.", format="int64")] = 0
    files_kept: Annotated[
        int,
        says(
            "Of a sync: finished files that were complete in the set already, and were not copied.",
            format="int64",
        ),
    ] = 0
    files_failed: Annotated[int, says("Files that failed after all attempts.", format="int64")] = 0
    bytes_done: Annotated[int, says("Bytes finished.", format="int64")] = 0
    bytes_total: Annotated[int, says("Bytes found so far.", format="int64")] = 0
    percent: Annotated[
        str, says("Finished part, e.g. 42%: of the bytes, or of the files when those are empty.")
    ] = ""
    cached_percent: Annotated[
        float, says("Percent of the bytes that the engine's own check found on the nodes.")
    ] = 0.0
    listed: Annotated[bool, says("The totals are final.")] = False
    eta_seconds: Annotated[
        int,
        says(
            "Seconds until the end, at the average rate so far; absent until all is listed, and afterwards.",
            format="int64",
        ),
    ] = 0


class SampleJobStatus(CommonStatus):
    """The state of the job."""

    phase: Annotated[str, says("Pending, Running, Succeeded or Failed.")] = ""
    job_name: Annotated[
        str, says("Run id; a new one when a failed job starts again, after its options were edited.")
    ] = ""
    sample_set_name: Annotated[str, says("The SampleSet of this run, whatever the spec says by now.")] = ""
    sample_set_uid: Annotated[
        str, says("Its uid: the run ends with that SampleSet, also when another gets its name.")
    ] = ""
    type: Annotated[str, says("The operation of this run.")] = ""
    request_digest: Annotated[
        str,
        says(
            "Digest of what the spec asked for when the run was requested, and then when it ended. A failed"
            " job starts again when a later edit asks for something else; one that was edited after its end"
            " under an older release, and so is without this field, does not."
        ),
    ] = ""
    creation_version: Annotated[
        str,
        says(
            "resourceVersion with which the job was first seen: tells which of two that were created in the"
            " same second is the older one."
        ),
    ] = ""
    progress: SampleJobProgress | None = None
    cancellation_time: Annotated[
        str | None,
        says("With spec.terminate: when it began to cancel what ran and waited.", format="date-time"),
    ] = None
    cancelled_runs: Annotated[
        tuple[str, ...],
        says(
            "With spec.terminate: ids of the runs that it ends, of SampleJobs and of the SampleSet itself,"
            " until their end is known.",
            maxItems=CANCELLED_RUNS,
        ),
    ] = ()
    start_time: Annotated[str | None, says("When the run started.", format="date-time")] = None
    completion_time: Annotated[str | None, says("When the run ended.", format="date-time")] = None


_NO_RUN = (
    "!has(self.spec) || !has(oldSelf.spec) || !has(oldSelf.status) || !has(oldSelf.status.jobName)"
    " || oldSelf.status.jobName == '' || !has(oldSelf.status.phase)"
    " || !(oldSelf.status.phase in ['Pending', 'Running'])"
)


def _fixed(field: str) -> Rule:
    """What selects the work of a run: it goes on as it was requested, whatever the spec says by now. A failed
    job starts again when they are edited; one that has succeeded does not."""
    # Only the API server sees a change; a service goes by what the status says of the run.
    return rule(
        f"{_NO_RUN} || ({is_as_before(field)})",
        f"{field} cannot be changed while the run goes on: wait for its end, or delete the SampleJob, which"
        " cancels the run, and create another",
        lambda _: True,
        field=f".spec.{field}",
    )


SAMPLE_JOB_RULES = (
    *map(_fixed, ("sampleSetRef", "type", *(operation.options_field for operation in OPERATIONS))),
    rule(
        "oldSelf.hasValue() || has(self.spec)",
        "spec is required: set spec.type and spec.sampleSetRef.name",
        lambda subject: subject.has_spec,
        field=".spec",
        reason="FieldValueRequired",
        optionalOldSelf=True,
    ),
    rule(
        f"oldSelf.hasValue() || size(self.metadata.name) <= {JOB_NAME_LENGTH}",
        f"metadata.name must have at most {JOB_NAME_LENGTH} characters, since its finalizer is made from it",
        lambda subject: len(subject.name) <= JOB_NAME_LENGTH,
        field=".metadata.name",
        optionalOldSelf=True,
    ),
    rule(
        "!has(self.spec) || !has(self.spec.after) || !(self.metadata.name in self.spec.after)",
        "spec.after names the job itself, which would never run; name other SampleJobs",
        lambda subject: subject.name not in subject.spec.after,
        field=".spec.after",
    ),
)
