"""PaddleJob, batch.paddlepaddle.org/v1: one distributed training run."""

from __future__ import annotations

from enum import StrEnum
from re import fullmatch
from typing import Annotated

from pydantic import ConfigDict, Field

from paddlewheel.contracts.crds.base import (
    CrdModel,
    Rule,
    int32,
    is_as_before,
    needs,
    rule,
    rules,
    says,
    without_match,
)
from paddlewheel.contracts.crds.common import CommonStatus, ObjectReferences
from paddlewheel.contracts.crds.limits import (
    LABEL_LENGTH,
    PATH_LENGTH,
    REPLICAS,
    SERVICE_NAME,
    VARIABLE_BYTES,
)
from paddlewheel.contracts.crds.models import DIGEST, MODEL_NAME, Word, without_keys
from paddlewheel.contracts.crds.podtemplate import PodTemplate
from paddlewheel.contracts.crds.quantity import Quantities
from paddlewheel.contracts.reasons import Reason

PS, WORKER, HETER = "ps", "worker", "heter"
MANAGED_BY_LENGTH = 63
MANAGED_BY = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
OWN_CONTROLLER = "paddlepaddle.org/job-controller"
"""The value of `managedBy` for our job-controller. An absent `managedBy` means the same."""
ROLES = (PS, WORKER, HETER)
"""The roles, in the order in which their pods are created."""


class Network(StrEnum):
    """How the pods of a job address each other."""

    POD_IP = "PodIP"
    SERVICE = "Service"
    HOST = "Host"


class Mode(StrEnum):
    """The kind of training."""

    PS = "PS"
    COLLECTIVE = "Collective"
    SINGLE = "Single"


_TEMPLATE = rule(
    "has(self.template) && has(self.template.spec) && has(self.template.spec.containers)",
    "template.spec.containers is required: give the role a pod template with at least one container",
    lambda role: bool(((role.template or {}).get("spec") or {}).get("containers")),
    field=".template.spec.containers",
    reason="FieldValueRequired",
)


class RoleSpec(CrdModel):
    """A role of the job: the number of its pods, and their template."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".replicas", "replicas is required: set the number of pods of this role"), _TEMPLATE
        )
    )

    replicas: Annotated[
        int, int32("Desired number of pods. 0 keeps the role without pods.", minimum=0, maximum=REPLICAS)
    ] = 0
    requests: Annotated[
        int | None,
        int32(
            "Smallest number of workers that the job can train with; default: replicas. If it is below"
            " replicas, the job trains with as many workers as the cluster has room for, and restarts with"
            " more of them when there is more room. It has an effect for worker only."
        ),
    ] = None
    limits: Annotated[int | None, int32("Has no effect: the role never has more pods than replicas.")] = None
    template: Annotated[PodTemplate | None, says("Template of the role's pods.")] = None


class SchedulingPolicy(CrdModel):
    """Gang scheduling of the job's pods. With Kubernetes' own gang scheduling only `minAvailable` has an
    effect; the other fields need Volcano."""

    min_available: Annotated[
        int | None,
        int32(
            "Number of pods that must be scheduled together; default: the replicas of all roles, counting"
            " worker.requests instead of worker.replicas where it is set."
        ),
    ] = None
    queue: Annotated[
        str,
        says(
            "Queue of Volcano. In a cluster with Volcano, setting it selects Volcano as the gang scheduler."
        ),
    ] = ""
    priority_class: Annotated[str, says("PriorityClass of the gang in its queue, for Volcano.")] = ""
    min_resources: Annotated[
        Quantities | None,
        says(
            "Resources that must be free before pods are created, e.g. {cpu: 8}, for Volcano; default: the"
            " sum of the requests of the minAvailable pods, and the limits of containers without requests."
        ),
    ] = None


class GangKind(StrEnum):
    """The scheduler that starts the pods of a job all together or not at all."""

    NONE = "None"
    VOLCANO = "Volcano"
    NATIVE = "Native"


class Placement(StrEnum):
    """Whether worker i runs on the node of partition i of its data set."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"


class JobSampleSetRef(CrdModel):
    """The SampleSet to train on and its mount path in the pods."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".name", "name is required: name a SampleSet in the job's namespace"),
            needs(".mountPath", "mountPath is required: where the pods mount the data, e.g. /data"),
        )
    )

    name: Annotated[str, says("Name of the SampleSet.", minLength=1)] = ""
    namespace: Annotated[
        str,
        says(
            "Namespace of the SampleSet. It must be the job's own, since a pod can only mount claims of its"
            " namespace."
        ),
    ] = ""
    mount_path: Annotated[
        str,
        says(
            "Path at which the first container of each pod mounts the data, e.g. /data.",
            minLength=1,
            maxLength=PATH_LENGTH,
            **rules(
                rule(
                    "!self.contains(':')",
                    "mountPath must not contain ':': use a plain path such as /data",
                    lambda path: ":" not in path,
                ),
                without_match(
                    "^[/.]*$", "mountPath must not be the container's root: use a directory such as /data"
                ),
            ),
        ),
    ] = ""

    placement: Annotated[
        str,
        says(
            "Where worker i runs. Preferred (default): on the node of partition i if that has room,"
            " otherwise on another node, where the worker reads over the network. Required: only on the node"
            " of partition i; the worker waits for room there.",
            enum=[p.value for p in Placement],
        ),
    ] = ""

    @property
    def is_required(self) -> bool:
        """Whether worker i may run only on the node of partition i."""
        return self.placement == Placement.REQUIRED


class OutputModel(CrdModel):
    """The model that the job makes.

    Once the job has succeeded and its program has reported that it saved the model, the model is published on
    the bus. PaddleServices of the namespace that follow the model's name roll it out.
    """

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".uri", "uri is required: where the job saves the model, e.g. s3://models/digits/1"),
        )
    )

    uri: Annotated[
        str,
        says(
            "Folder of an object store in which the program saves the inference model, e.g."
            " s3://models/digits/1. Use another folder for each version.",
            minLength=1,
            maxLength=PATH_LENGTH,
            **rules(without_keys("uri", "give them to the pods, in variables from a Secret")),
        ),
    ] = ""
    name: Annotated[
        str,
        says(
            "Name under which PaddleServices follow the model; default: the job's name.",
            maxLength=63,
            pattern=MODEL_NAME,
        ),
    ] = ""
    version: Annotated[
        Word, says("Version of the model, e.g. 3; default: the first eight characters of the job's uid.")
    ] = ""
    digest: Annotated[
        str,
        says(
            "Digest of the model's files, sha256:<hex>, if it is known in advance; default: the digest that"
            " the program reports. PaddleServices refuse files with another digest.",
            pattern=DIGEST,
        ),
    ] = ""


class FailureAction(StrEnum):
    """The reaction to a pod's failure."""

    RESTART = "Restart"
    IGNORE = "Ignore"
    FAIL = "Fail"


class RestartScope(StrEnum):
    """The pods that are restarted when one has failed."""

    GANG = "Gang"
    POD = "Pod"


PROGRAM_CAUSES = (Reason.POD_FAILED, Reason.OOM_KILLED)
DISRUPTIONS = (
    Reason.EVICTED,
    Reason.PREEMPTED,
    Reason.NODE_LOST,
    Reason.MOUNT_LOST,
    Reason.REJECTED_BY_NODE,
    Reason.POD_DELETED,
)
"""Causes outside of the program."""
FAILURE_CAUSES = tuple(cause.value for cause in (*PROGRAM_CAUSES, *DISRUPTIONS))
"""All causes for which a pod can be lost."""

_CAUSES = ", ".join(FAILURE_CAUSES)


class FailureRule(CrdModel):
    """A rule for failures. It applies to a failure that matches all fields that the rule sets."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".action", "action is required: Restart, Ignore (restart, but do not count) or Fail")
        )
    )

    action: Annotated[
        str,
        says(
            "Reaction to the failure. Restart: restart and count it. Ignore: restart without counting it."
            " Fail: the job fails at once.",
            enum=[a.value for a in FailureAction],
        ),
    ] = ""
    exit_codes: Annotated[
        list[Annotated[int, int32("Exit code.", minimum=1, maximum=255)]],
        says("Exit codes that the rule matches, e.g. [137]; default: all.", maxItems=255),
    ] = Field(default_factory=list)
    reasons: Annotated[
        list[Annotated[str, says("Cause.", enum=list(FAILURE_CAUSES))]],
        says(f"Causes that the rule matches: {_CAUSES}; default: all.", maxItems=len(FAILURE_CAUSES)),
    ] = Field(default_factory=list)
    roles: Annotated[
        list[Annotated[str, says("Role.", enum=list(ROLES))]],
        says("Roles that the rule matches: ps, worker, heter; default: all.", maxItems=len(ROLES)),
    ] = Field(default_factory=list)
    limit: Annotated[
        int | None,
        int32(
            "With action Restart, the number of restarts by this rule; default: for failures of the program,"
            " backoffLimit; for disruptions, 10, counting only restarts with less than ten minutes of"
            " running between them."
        ),
    ] = None


class FailurePolicy(CrdModel):
    """Whether a failed pod restarts the job or ends it, and which pods restart."""

    restart_scope: Annotated[
        str,
        says(
            "Pods that restart when one fails. Gang (default): all pods together, as a new epoch. Pod: only"
            " the pod that failed.",
            enum=[s.value for s in RestartScope],
        ),
    ] = ""
    rules: Annotated[
        list[FailureRule],
        says("Rules for failures. The first rule that matches a failure applies.", maxItems=32),
    ] = Field(default_factory=list)


class LastRestart(CrdModel):
    """The last restart of the job."""

    time: Annotated[str, says("When the restart was decided.", format="date-time")] = ""
    reason: Annotated[str, says("Cause of the restart, e.g. OOMKilled.")] = ""
    message: Annotated[
        str, says("The pod that caused the restart, its exit code and its last line of output.")
    ] = ""
    failures: Annotated[
        int,
        int32(
            "Number of restarts after failures in a row, with less than ten minutes of running between them."
            " From the second on, each restart waits longer than the one before."
        ),
    ] = 0


class World(CrdModel):
    """The number of workers of a job that trains with fewer than worker.replicas, because there is no room
    for all."""

    workers: Annotated[int, int32("Number of workers that train.")] = 0
    of: Annotated[int, int32("Value of worker.replicas for which the number was chosen.")] = 0
    since: Annotated[str, says("When the number was chosen.", format="date-time")] = ""
    grew_from: Annotated[
        int, int32("Number of workers before the last growth; 0 if the last change was a shrink.")
    ] = 0
    lost_growths: Annotated[
        int,
        int32(
            "Number of growths in a row that were soon followed by a shrink. Each one doubles the time"
            " before the next growth."
        ),
    ] = 0


class ProgressPolicy(CrdModel):
    """When a running job counts as stalled. Only for programs that report progress."""

    stall_seconds: Annotated[
        int | None,
        int32(
            "Seconds without a report of progress after which the job counts as stalled; default: five times"
            " the usual time between two reports, at least 120.",
            minimum=30,
        ),
    ] = None


class PaddleJobSpec(CrdModel):
    """The desired job. At least one role is required. The API server fills in no defaults."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                " || ".join(f"has(self.{role})" for role in ROLES),
                "spec has no ps, worker or heter: add spec.worker with replicas and a template",
                lambda spec: bool(spec.roles),
            )
        )
    )

    clean_pod_policy: Annotated[
        str,
        says(
            "When the pods are deleted at the end of the job: Always, Never, OnFailure or OnCompletion."
            " Default: OnCompletion, so the pods of a failed job are kept. Any other word means Never."
        ),
    ] = ""
    intranet: Annotated[
        str,
        says(
            "How pods address each other. PodIP (default): by IP address. Service: by the names of Services,"
            " one for each pod. Host: by the node's address, on the network of the node. Any other word"
            " means PodIP."
        ),
    ] = ""
    with_gloo: Annotated[
        int | None, int32("Gloo: 0 off (default), 1 for workers only, 2 for workers and parameter servers.")
    ] = None
    elastic: Annotated[
        int | None, int32("Elastic training of Paddle's launcher: 0 off (default), any other number on.")
    ] = None
    scheduling_policy: Annotated[
        SchedulingPolicy | None,
        says(
            "Gang scheduling: all pods start together or none does. Volcano or Kubernetes itself schedules"
            " them. {} switches it on with the defaults; default: off."
        ),
    ] = None
    sample_set_ref: Annotated[
        JobSampleSetRef | None,
        says("Data set to train on. Pods are created once it is ready, and mount it from its cache."),
    ] = None
    output_model: Annotated[
        OutputModel | None,
        says(
            "Model that is published once the job has succeeded and its program has reported that it saved"
            " it."
        ),
    ] = None
    suspend: Annotated[
        bool,
        says("If true, the job's pods are deleted and it waits. It continues when the field is false again."),
    ] = False
    active_deadline_seconds: Annotated[
        int | None,
        int32(
            "Seconds after its admission at which the job fails if it has not ended, including the time that"
            " its pods wait for nodes; default: no limit.",
            minimum=1,
        ),
    ] = None
    ttl_seconds_after_finished: Annotated[
        int | None, int32("Seconds after its end at which the job is deleted; default: never.", minimum=0)
    ] = None
    backoff_limit: Annotated[
        int | None,
        int32(
            "Number of restarts after failures of the program; default: 0, the first failure ends the job."
            " Disruptions, such as an eviction or a lost node, are counted separately.",
            minimum=0,
        ),
    ] = None
    managed_by: Annotated[
        str,
        says(
            "Controller of the job, e.g. kueue.x-k8s.io/multikueue; default: job-controller, which ignores"
            " jobs with another controller. Immutable.",
            maxLength=MANAGED_BY_LENGTH,
            pattern=MANAGED_BY,
        ),
    ] = ""
    failure_policy: Annotated[
        FailurePolicy | None,
        says("Whether a failed pod restarts the job or ends it, and which pods restart."),
    ] = None
    checkpoint_path: Annotated[
        str,
        says(
            "Where the program keeps its checkpoints: a path in the pods or a URI, e.g. /checkpoints. The"
            " program reads it from the variable PADDLEWHEEL_CHECKPOINT_PATH.",
            maxLength=PATH_LENGTH,
            **rules(without_keys("checkpointPath", "give them to the pods, in variables from a Secret")),
        ),
    ] = ""
    progress: Annotated[
        ProgressPolicy | None, says("When the job counts as stalled. Only for programs that report progress.")
    ] = None
    ps: Annotated[RoleSpec | None, says("Parameter servers. A job with this role runs in mode PS.")] = None
    worker: Annotated[
        RoleSpec | None, says("Trainers. A job with several workers and without ps runs in mode Collective.")
    ] = None
    heter: Annotated[
        RoleSpec | None, says("Heterogeneous trainers, e.g. on CPUs beside workers on GPUs.")
    ] = None

    @property
    def roles(self) -> dict[str, RoleSpec]:
        """The roles that are present, in the order of their creation."""
        named = {PS: self.ps, WORKER: self.worker, HETER: self.heter}
        return {name: role for name, role in named.items() if role is not None}

    @property
    def network(self) -> Network:
        """The network that `intranet` selects; an unknown word means PodIP."""
        return next((n for n in Network if n == self.intranet), Network.POD_IP)

    @property
    def mode(self) -> Mode:
        """PS for a job with parameter servers, Collective for one with several workers, otherwise Single."""
        if self.ps is not None:
            return Mode.PS
        return Mode.COLLECTIVE if (self.replicas_of(WORKER) or 0) > 1 else Mode.SINGLE

    def replicas_of(self, role: str) -> int | None:
        """The desired number of pods of the role; None if the job does not have the role."""
        spec = self.roles.get(role)
        return spec.replicas if spec else None


class RoleStatus(CrdModel):
    """The number of pods of one role in each state."""

    pending: Annotated[int, int32("Number of pods that have not started.")] = 0
    starting: Annotated[int, int32("Number of running pods with containers that are not ready.")] = 0
    running: Annotated[int, int32("Number of pods that are running and ready.")] = 0
    failed: Annotated[int, int32("Number of pods that have failed.")] = 0
    succeeded: Annotated[int, int32("Number of pods that have succeeded.")] = 0
    unknown: Annotated[int, int32("Not used.")] = 0
    refs: Annotated[ObjectReferences, says("References to the pods.")] = Field(default_factory=list)
    succeeded_indexes: Annotated[
        list[int],
        says("Indexes of the pods that have succeeded. They are not created again after they are deleted."),
    ] = Field(default_factory=list)


class JobProgress(CrdModel):
    """The progress of the training, as its program reports it.

    Figures that the program does not report are absent.
    """

    step: Annotated[
        int | None, says("Number of finished steps, counted over the whole training.", format="int64")
    ] = None
    total_steps: Annotated[int | None, says("Number of steps of the whole training.", format="int64")] = None
    epoch: Annotated[int | None, says("Number of finished epochs of the training.", format="int64")] = None
    total_epochs: Annotated[int | None, says("Number of epochs of the whole training.", format="int64")] = (
        None
    )
    loss: Annotated[float | None, says("Loss in the last report.")] = None
    samples_per_second: Annotated[float | None, says("Samples per second of all workers together.")] = None
    percent: Annotated[
        str, says("Finished share of the steps, or of the epochs if the total of steps is unknown, e.g. 42%.")
    ] = ""
    eta: Annotated[
        str | None, says("When the training will end at its present speed.", format="date-time")
    ] = None
    updated_at: Annotated[str | None, says("When the program sent the last report.", format="date-time")] = (
        None
    )
    interval_seconds: Annotated[
        float | None,
        says(
            "Usual time between two reports in seconds. The default of progress.stallSeconds depends on it."
        ),
    ] = None


class GangStatus(CrdModel):
    """The gang scheduling of the job's pods."""

    kind: Annotated[
        str,
        says(
            "Gang scheduler: Volcano, Native (Kubernetes' own), or None (each pod is scheduled by itself).",
            enum=[k.value for k in GangKind],
        ),
    ] = GangKind.NONE
    pod_group: Annotated[str, says("Name of the PodGroup.")] = ""
    min_available: Annotated[int, int32("Number of pods that are scheduled together.")] = 0
    phase: Annotated[
        str,
        says(
            "Phase of the PodGroup. Volcano: as Volcano reports it. Native: Pending, or Scheduled once the"
            " pods have nodes."
        ),
    ] = ""
    message: Annotated[str, says("Why this gang scheduler was chosen.")] = ""


class SavedModel(CrdModel):
    """The model that the program has saved, as it reports."""

    uri: Annotated[str, says("Folder in which the program saved the model.")] = ""
    digest: Annotated[str, says("Digest of the model's files, if the program reported one.")] = ""


class PaddleJobStatus(CommonStatus):
    """The observed state of the job."""

    phase: Annotated[
        str,
        says("Phase of the job: Pending, Starting, Running, Restarting, Completed, Failed or Terminating."),
    ] = ""
    mode: Annotated[str, says("Mode of the training: PS, Collective or Single.")] = ""
    ps: RoleStatus | None = None
    worker: RoleStatus | None = None
    heter: RoleStatus | None = None
    ready: Annotated[
        str, says("Number of ready pods and of desired pods, e.g. 3/4. At the end no pod is ready: 0/4.")
    ] = ""
    selector: Annotated[str, says("Label selector of the workers' pods, for autoscalers.")] = ""
    duration: Annotated[str, says("Time from start to end, e.g. 3m20s. Written once, at the end.")] = ""
    elastic: Annotated[str, says("State of elastic scaling: NONE, DOING, DONE or ERROR.")] = ""
    start_time: Annotated[
        str | None, says("When the phase was Running for the first time.", format="date-time")
    ] = None
    completion_time: Annotated[
        str | None, says("When the phase became Completed or Failed.", format="date-time")
    ] = None
    results: Annotated[
        dict[str, float],
        says("Numbers by name, from the termination message of the first worker, e.g. {accuracy: 0.99}."),
    ] = Field(default_factory=dict)
    saved_model: Annotated[
        SavedModel | None,
        says(
            "Model that the program has saved, from the termination message of the first worker. Only with"
            " outputModel."
        ),
    ] = None
    epoch: Annotated[
        int, int32("Number of times that all pods were created again together. The first pods have epoch 0.")
    ] = 0
    restarts: Annotated[dict[str, int], says("Number of restarts by cause.")] = Field(default_factory=dict)
    budgets: Annotated[
        dict[str, int],
        says(
            "Number of restarts that count against each limit: backoffLimit, disruptions, and rule-<n> for"
            " the n-th rule of failurePolicy."
        ),
    ] = Field(default_factory=dict)
    last_restart: Annotated[LastRestart | None, says("The last restart, and its cause.")] = None
    world: Annotated[
        World | None,
        says("Number of workers that train. Only if it is below worker.replicas; see worker.requests."),
    ] = None
    replacing: Annotated[
        list[str],
        says("Uids of failed pods that are being replaced one by one. Their failures are counted already."),
    ] = Field(default_factory=list)
    progress: Annotated[JobProgress | None, says("Progress of the training, as its program reports it.")] = (
        None
    )
    suspensions: Annotated[int, int32("Number of times that the job was suspended.")] = 0
    gang: Annotated[GangStatus | None, says("Gang scheduling. Only for jobs with schedulingPolicy.")] = None
    stuck_on: Annotated[
        list[str],
        says("Reasons for which the job has been stuck so far. One fact JobStuck is published for each."),
    ] = Field(default_factory=list)

    @property
    def roles(self) -> dict[str, RoleStatus]:
        """The roles that are present, in the order of their creation."""
        named = {PS: self.ps, WORKER: self.worker, HETER: self.heter}
        return {name: role for name, role in named.items() if role is not None}


def last_pod_fits(name: str, role: str, replicas: int) -> bool:
    """Whether the name of the role's last pod is short enough for a label value."""
    return replicas < 1 or len(f"{name}-{role}-{replicas - 1}") <= LABEL_LENGTH


def _pod_names_fit(role: str) -> Rule:
    """The rule that the names of a role's pods are short enough: they are also label values and Service
    names."""
    at, was = f"self.spec.{role}", f"oldSelf.value().spec.{role}"
    same = (
        f"oldSelf.hasValue() && has(oldSelf.value().spec) && has({was}) && has({was}.replicas)"
        f" && {was}.replicas == {at}.replicas"
    )
    length = f"size(self.metadata.name) + {len(role) + 2} + size(string({at}.replicas - 1))"
    return rule(
        f"!has(self.spec) || !has({at}) || !has({at}.replicas) || {at}.replicas < 1 || ({same})"
        f" || {length} <= {LABEL_LENGTH}",
        f"metadata.name is too long: the last pod, <name>-{role}-<replicas - 1>, would have more than the"
        f" {LABEL_LENGTH} characters that Kubernetes allows; shorten it",
        lambda subject: last_pod_fits(subject.name, role, subject.spec.replicas_of(role) or 0),
        field=".metadata.name",
        optionalOldSelf=True,
    )


ENDPOINT_VARIABLES = {
    PS: ("PADDLE_PSERVERS_IP_PORT_LIST",),
    WORKER: ("PADDLE_TRAINER_ENDPOINTS",),
    # The original operator sets the first; older releases of Paddle read the second, newer ones the third.
    HETER: (
        "PADDLE_HETER_ENDPOINTS",
        "PADDLE_HETER_TRAINER_IP_PORT_LIST",
        "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST",
    ),
}
"""Role to the environment variables that list the addresses of all of its pods."""
_SHORTEST_ENDPOINT = len("1.1.1.1:36000,")
_PORT = len(":36000,")


def endpoints_bytes(name: str, role: str, spec: PaddleJobSpec) -> int:
    """The smallest number of bytes that the list of a role's addresses can have.

    IP addresses are not known yet, so the shortest possible ones are assumed. The result is 0 for elastic
    jobs, which have no list, and for jobs on the network of the nodes.
    """
    replicas = spec.replicas_of(role) or 0
    if spec.elastic or spec.network is Network.HOST:
        return 0
    if spec.network is Network.POD_IP:
        return replicas * _SHORTEST_ENDPOINT
    digits = replicas + sum(max(0, replicas - least) for least in (10, 100, 1000))
    return replicas * (len(f"{name}-{role}-") + _PORT) + digits


def _room(role: str) -> int:
    """The largest number of bytes that a role's list of addresses may have, with a comma after each address.

    Linux's limit includes the variable's name, '=' and NUL. The last address has no comma.
    """
    return VARIABLE_BYTES - len(max(ENDPOINT_VARIABLES[role], key=len)) - 1


def _endpoints_fit(role: str) -> Rule:
    """The rule that the addresses of a role fit into one environment variable."""
    at, was = f"self.spec.{role}.replicas", f"oldSelf.value().spec.{role}"
    same = (
        f"oldSelf.hasValue() && has(oldSelf.value().spec) && has({was}) && has({was}.replicas)"
        f" && {was}.replicas == {at}"
    )
    digits = " + ".join((at, *(f"({at} > {least} ? {at} - {least} : 0)" for least in (10, 100, 1000))))
    by_name = f"{at} * (size(self.metadata.name) + {len(role) + 2 + _PORT}) + {digits}"
    network = "has(self.spec.intranet) ? self.spec.intranet : ''"
    variable = ENDPOINT_VARIABLES[role][-1]
    return rule(
        f"!has(self.spec) || !has(self.spec.{role}) || !has({at}) || ({same})"
        f" || (has(self.spec.elastic) && self.spec.elastic != 0) || ({network}) == 'Host'"
        f" || (({network}) == 'Service' ? {by_name} : {at} * {_SHORTEST_ENDPOINT}) <= {_room(role)}",
        f"replicas is too large: the variable {variable} lists the addresses of all pods of the role, and"
        f" Linux does not start a program with a variable of more than {VARIABLE_BYTES} bytes; lower it, or,"
        " with spec.intranet Service, shorten metadata.name",
        lambda subject: endpoints_bytes(subject.name, role, subject.spec) <= _room(role),
        field=f".spec.{role}.replicas",
        optionalOldSelf=True,
    )


def _fixed(field: str, what_to_do: str, *, even_suspended: bool = False) -> Rule:
    """The rule that a field cannot change while the job runs, because running pods depend on it."""
    free = "!has(self.spec) || !has(oldSelf.spec)"
    if not even_suspended:
        free += " || (has(oldSelf.spec.suspend) && oldSelf.spec.suspend)"
    # Only the API server has the old object, so a service cannot check the rule.
    return rule(
        f"{free} || ({is_as_before(field)})",
        f"{field} cannot be changed: {what_to_do}",
        lambda _: True,
        field=f".spec.{field}",
    )


_SUSPEND_FIRST = "suspend the job first (spec.suspend: true), or delete it and create it again"

PADDLE_JOB_RULES = (
    *(_fixed(field, _SUSPEND_FIRST) for field in ("intranet", "elastic", "withGloo", "sampleSetRef")),
    _fixed("managedBy", "delete the job and create it again", even_suspended=True),
    rule(
        "oldSelf.hasValue() || has(self.spec)",
        "spec is required: add spec.worker with replicas and a template",
        lambda subject: subject.has_spec,
        field=".spec",
        reason="FieldValueRequired",
        optionalOldSelf=True,
    ),
    *(_pod_names_fit(role) for role in ROLES),
    *(_endpoints_fit(role) for role in ROLES),
    rule(
        "!has(self.spec) || !has(self.spec.intranet) || self.spec.intranet != 'Service'"
        f" || self.metadata.name.matches('{SERVICE_NAME}') || (oldSelf.hasValue()"
        " && has(oldSelf.value().spec) && has(oldSelf.value().spec.intranet)"
        " && oldSelf.value().spec.intranet == 'Service')",
        "metadata.name must begin with a letter and must not contain '.' with spec.intranet Service, since"
        " the names of Services are made from it: use '-' instead of '.'",
        lambda subject: (
            subject.spec.network is not Network.SERVICE or bool(fullmatch(SERVICE_NAME, subject.name))
        ),
        field=".metadata.name",
        optionalOldSelf=True,
    ),
)
