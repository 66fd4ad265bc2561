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
"""Jobs in spec.after, at most."""
CANCELLED_RUNS = 256
"""Runs that one job with spec.terminate cancels, at most. Further runs continue."""
_TYPES = f"Operation of the job: {', '.join(WORDS[:-1])} or {WORDS[-1]}."


class SampleSetName(CrdModel):
    """A reference to a SampleSet in the same namespace."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".name", "sampleSetRef.name is required: name a SampleSet in this namespace")
        )
    )

    name: Annotated[str, says("Name of the SampleSet.", minLength=1)] = ""


class SampleJobSpec(OperationOptions):
    """The desired operation, and its SampleSet."""

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
    secret_ref: Annotated[
        SecretReference | None,
        says(
            "Secret with the credentials of the source. Required by type sync; a public bucket needs no keys"
            " in it."
        ),
    ] = None
    terminate: Annotated[
        bool, says("Whether to cancel the set's running and waiting operations before this one starts.")
    ] = False
    priority: Annotated[
        int,
        int32(
            "Priority among jobs of a set that cannot run at the same time: the job with the highest"
            " priority runs first, and among equal ones the oldest; default: 0."
        ),
    ] = 0
    after: Annotated[
        tuple[Annotated[str, says("Name of a SampleJob.", minLength=1, maxLength=JOB_NAME_LENGTH)], ...],
        says(
            "SampleJobs of the same namespace and SampleSet that must succeed before this job runs. The job"
            " fails if one of them fails, is cancelled, or does not exist a minute after this job was"
            " created.",
            maxItems=JOBS_BEFORE,
        ),
    ] = ()
    ttl_seconds_after_finished: Annotated[
        int | None, int32("Seconds after its end at which the job is deleted; default: never.", minimum=0)
    ] = None


class SampleJobProgress(CrdModel):
    """Progress of the run. The figures are updated for each finished chunk of files."""

    files_done: Annotated[int, says("Number of finished files.", format="int64")] = 0
    files_total: Annotated[
        int, says("Number of files found so far; final once listed is true.", format="int64")
    ] = 0
    files_kept: Annotated[
        int,
        says(
            "For type sync: number of finished files that were not copied, because the set already had them"
            " complete.",
            format="int64",
        ),
    ] = 0
    files_failed: Annotated[int, says("Number of files that failed in all attempts.", format="int64")] = 0
    bytes_done: Annotated[int, says("Number of finished bytes.", format="int64")] = 0
    bytes_total: Annotated[
        int, says("Number of bytes found so far; final once listed is true.", format="int64")
    ] = 0
    percent: Annotated[
        str, says("Finished share of the bytes or of the files, whichever is less, e.g. 42%.")
    ] = ""
    cached_percent: Annotated[
        float, says("Percentage of the bytes that JuiceFS's own check found on the nodes, from 0 to 100.")
    ] = 0.0
    listed: Annotated[bool, says("Whether all files are listed, so that the totals are final.")] = False
    eta_seconds: Annotated[
        int,
        says(
            "Seconds until the end at the average rate so far. Absent until all files are listed, and after"
            " the end.",
            format="int64",
        ),
    ] = 0


class SampleJobStatus(CommonStatus):
    """The observed state of the job."""

    phase: Annotated[str, says("Phase of the job: Pending, Running, Succeeded or Failed.")] = ""
    job_name: Annotated[
        str,
        says("Id of the run. A failed job gets a new one when its options are edited and it starts again."),
    ] = ""
    sample_set_name: Annotated[
        str, says("Name of the run's SampleSet. It does not change when the spec is edited.")
    ] = ""
    sample_set_uid: Annotated[
        str,
        says(
            "Uid of the run's SampleSet. The run ends when this SampleSet is deleted, even if another one"
            " gets its name."
        ),
    ] = ""
    type: Annotated[str, says("Operation of the run.")] = ""
    request_digest: Annotated[
        str,
        says(
            "Digest of the work that the spec requested when the run was requested, updated when the run"
            " ends. A failed job starts again when a later edit requests other work. Absent in jobs that"
            " ended under an older release: their edits do not start them again."
        ),
    ] = ""
    creation_version: Annotated[
        str,
        says(
            "resourceVersion with which the controller first saw the job. It orders jobs that were created"
            " in the same second."
        ),
    ] = ""
    progress: SampleJobProgress | None = None
    cancellation_time: Annotated[
        str | None,
        says("With spec.terminate: when the job began to cancel other runs.", format="date-time"),
    ] = None
    cancelled_runs: Annotated[
        tuple[str, ...],
        says(
            "With spec.terminate: ids of the runs that the job cancels and that have not ended yet. They"
            " belong to SampleJobs or to the SampleSet itself.",
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
    """The rule that a field cannot change during a run, because the run continues as it was requested.

    After the end of the run the field can be edited: a failed job then starts again, a job that has succeeded
    does not.
    """
    # Only the API server has the old object, so a service cannot check the rule. It reads the run from the
    # status.
    return rule(
        f"{_NO_RUN} || ({is_as_before(field)})",
        f"{field} cannot be changed during the run: wait for its end, or delete the SampleJob, which cancels"
        " the run, and create another",
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
        "spec.after names the job itself, so the job would never run; name other SampleJobs",
        lambda subject: subject.name not in subject.spec.after,
        field=".spec.after",
    ),
)
