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
"""The value of `managedBy` that names this project's job-controller, like an absent one."""
ROLES = (PS, WORKER, HETER)
"""Names of the roles, in the order in which their pods are created."""


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
    """One role: the number of its pods and their template."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".replicas", "replicas is required: say how many pods this role has"), _TEMPLATE
        )
    )

    replicas: Annotated[int, int32("Wanted pods.", minimum=0, maximum=REPLICAS)] = 0
    requests: Annotated[
        int | None,
        int32(
            "The least number of workers that the job can train with. Below replicas, it trains with as many"
            " as there is room for, and restarts with more when there is more. Unset: all. In other roles:"
            " accepted without effect."
        ),
    ] = None
    limits: Annotated[
        int | None, int32("Accepted without effect: the role never has more pods than replicas.")
    ] = None
    template: Annotated[PodTemplate | None, says("Pod template of the role.")] = None


class SchedulingPolicy(CrdModel):
    """How the pods of the job are scheduled together. Of its fields, Kubernetes' own gang scheduling knows
    `minAvailable` alone; the others need Volcano."""

    min_available: Annotated[
        int | None,
        int32(
            "Pods that must be scheduled together; default: the sum of replicas, or of worker.requests where"
            " the job can train with fewer workers."
        ),
    ] = None
    queue: Annotated[str, says("Volcano's queue; where Volcano is installed, it asks for Volcano.")] = ""
    priority_class: Annotated[str, says("Priority class of the gang in its queue.")] = ""
    min_resources: Annotated[
        Quantities | None,
        says(
            "Resources that must be free before pods are created; default: the sum of the requests of these"
            " pods' containers, or of the limits of containers without requests."
        ),
    ] = None


class GangKind(StrEnum):
    """Who schedules the pods of a job all together or not at all."""

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
            needs(".mountPath", "mountPath is required: say where the pods mount the data, e.g. /data"),
        )
    )

    name: Annotated[str, says("Name of the SampleSet.", minLength=1)] = ""
    namespace: Annotated[
        str, says("Namespace of the SampleSet: the job's own, since a claim cannot be mounted from another.")
    ] = ""
    mount_path: Annotated[
        str,
        says(
            "Path in the first container of every role.",
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
            "Preferred: worker i runs on the node of partition i if it has room, else on another one, where"
            " it reads over the network. Required: it waits for that node. Default: Preferred.",
            enum=[p.value for p in Placement],
        ),
    ] = ""

    @property
    def is_required(self) -> bool:
        """Workers run beside their data only."""
        return self.placement == Placement.REQUIRED


class OutputModel(CrdModel):
    """The model that a job makes. Once the job has succeeded and its program has reported that it saved the
    model, it is published on the bus, and the PaddleServices of the namespace that follow its name roll it
    out."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".uri", "uri is required: say where the job saves the model, e.g. s3://models/digits/1"),
        )
    )

    uri: Annotated[
        str,
        says(
            "Folder of an object store in which the job saves the inference model, e.g. s3://models/digits/1;"
            " another version needs another folder.",
            minLength=1,
            maxLength=PATH_LENGTH,
            **rules(without_keys("uri", "give them to the pods, in variables from a Secret")),
        ),
    ] = ""
    name: Annotated[
        str,
        says("Name under which services follow it; default: the job's.", maxLength=63, pattern=MODEL_NAME),
    ] = ""
    version: Annotated[Word, says("Its version; default: the first eight characters of the job's uid.")] = ""
    digest: Annotated[
        str,
        says(
            "The files' digest, if it is known before; default: the one that the program reports. Services"
            " refuse other files.",
            pattern=DIGEST,
        ),
    ] = ""


class FailureAction(StrEnum):
    """What a failure of a pod leads to."""

    RESTART = "Restart"
    IGNORE = "Ignore"
    FAIL = "Fail"


class RestartScope(StrEnum):
    """What is restarted when a pod has failed."""

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
"""Causes that are not the program's."""
FAILURE_CAUSES = tuple(cause.value for cause in (*PROGRAM_CAUSES, *DISRUPTIONS))
"""Why a pod may be lost."""

_CAUSES = ", ".join(FAILURE_CAUSES)


class FailureRule(CrdModel):
    """What to do about some failures. A failure must match every field that is given."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".action", "action is required: Restart, Ignore (restart, but do not count) or Fail")
        )
    )

    action: Annotated[
        str,
        says(
            "Restart; Ignore: restart, but do not count it; or Fail: the job fails at once.",
            enum=[a.value for a in FailureAction],
        ),
    ] = ""
    exit_codes: Annotated[
        list[Annotated[int, int32("Exit code.", minimum=1, maximum=255)]],
        says("Exit codes that the rule is for; default: any.", maxItems=255),
    ] = Field(default_factory=list)
    reasons: Annotated[
        list[Annotated[str, says("Cause.", enum=list(FAILURE_CAUSES))]],
        says(f"Causes that the rule is for: {_CAUSES}; default: any.", maxItems=len(FAILURE_CAUSES)),
    ] = Field(default_factory=list)
    roles: Annotated[
        list[Annotated[str, says("Role.", enum=list(ROLES))]],
        says("Roles that the rule is for: ps, worker, heter; default: any.", maxItems=len(ROLES)),
    ] = Field(default_factory=list)
    limit: Annotated[
        int | None,
        int32(
            "Restart: how many restarts by this rule; default: backoffLimit, or, for disruptions, 10"
            " without a run of ten minutes between them."
        ),
    ] = None


class FailurePolicy(CrdModel):
    """What is restarted when a pod fails, and when."""

    restart_scope: Annotated[
        str,
        says(
            "Gang: all pods restart together as a new epoch; Pod: only the one that failed. Default: Gang.",
            enum=[s.value for s in RestartScope],
        ),
    ] = ""
    rules: Annotated[
        list[FailureRule], says("The first rule that matches a failure decides.", maxItems=32)
    ] = Field(default_factory=list)


class LastRestart(CrdModel):
    """Why the job was restarted the last time."""

    time: Annotated[str, says("When it was decided.", format="date-time")] = ""
    reason: Annotated[str, says("Its cause.")] = ""
    message: Annotated[str, says("The pod that caused it, with its exit code and last line.")] = ""
    failures: Annotated[
        int,
        int32(
            "Restarts after failures in a row, without ten minutes of running between them: from the second"
            " on they wait longer and longer."
        ),
    ] = 0


class World(CrdModel):
    """The workers that train, when there is no room for all."""

    workers: Annotated[int, int32("Workers that train.")] = 0
    of: Annotated[int, int32("The worker.replicas that this number was chosen for.")] = 0
    since: Annotated[str, says("When the number was chosen.", format="date-time")] = ""
    grew_from: Annotated[int, int32("Workers that trained before the job grew; 0 when it shrank.")] = 0
    lost_growths: Annotated[
        int,
        int32(
            "Growths in a row that were soon followed by a shrink. Each doubles the time before the next one."
        ),
    ] = 0


class ProgressPolicy(CrdModel):
    """What is expected of a program that reports its progress."""

    stall_seconds: Annotated[
        int | None,
        int32(
            "Seconds without a report after which a running job counts as stalled; default: five times the"
            " usual time between two reports, at least 120.",
            minimum=30,
        ),
    ] = None


class PaddleJobSpec(CrdModel):
    """What to run. At least one role is required; no field has a default in the API."""

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
            "Whether the pods are deleted at the end: Always, Never, OnFailure or OnCompletion. "
            "Unset: deleted when the job completed, kept when it failed. Any other word means Never."
        ),
    ] = ""
    intranet: Annotated[
        str,
        says("How pods address each other: PodIP, Service or Host. Unset or any other word means PodIP."),
    ] = ""
    with_gloo: Annotated[int | None, int32("0 off, 1 workers only, 2 workers and servers.")] = None
    elastic: Annotated[int | None, int32("Unset or 0: off. Any other number: elastic training.")] = None
    scheduling_policy: Annotated[
        SchedulingPolicy | None,
        says(
            "Gang scheduling: the pods start all together or not at all, by Volcano or by Kubernetes itself."
            " {} asks for it with the defaults."
        ),
    ] = None
    sample_set_ref: Annotated[
        JobSampleSetRef | None, says("Cached data set; pods start when it is ready.")
    ] = None
    output_model: Annotated[
        OutputModel | None,
        says("Model that is published once the job has succeeded and its program has reported it."),
    ] = None
    suspend: Annotated[
        bool, says("Whether the job gives up its pods and waits; it goes on when this is false again.")
    ] = False
    active_deadline_seconds: Annotated[
        int | None,
        int32("Seconds that the job may take from its admission on, waiting for nodes included.", minimum=1),
    ] = None
    ttl_seconds_after_finished: Annotated[
        int | None, int32("Seconds after its end at which the job is deleted; default: never.", minimum=0)
    ] = None
    backoff_limit: Annotated[
        int | None,
        int32(
            "Restarts after failures of the program; unset or 0: the first failure ends the job. Disruptions,"
            " such as an eviction or a lost node, are counted apart.",
            minimum=0,
        ),
    ] = None
    managed_by: Annotated[
        str,
        says(
            "Controller of the job; job-controller leaves a job alone that names another one. Immutable.",
            maxLength=MANAGED_BY_LENGTH,
            pattern=MANAGED_BY,
        ),
    ] = ""
    failure_policy: Annotated[FailurePolicy | None, says("What is restarted when a pod fails, and when.")] = (
        None
    )
    checkpoint_path: Annotated[
        str,
        says(
            "Where the program keeps its checkpoints, a path in the pods or a URI: its variable"
            " PADDLEWHEEL_CHECKPOINT_PATH.",
            maxLength=PATH_LENGTH,
            **rules(without_keys("checkpointPath", "give them to the pods, in variables from a Secret")),
        ),
    ] = ""
    progress: Annotated[
        ProgressPolicy | None, says("What is expected of a program that reports its progress.")
    ] = None
    ps: Annotated[RoleSpec | None, says("Parameter servers; their presence makes the mode PS.")] = None
    worker: Annotated[RoleSpec | None, says("Trainers.")] = None
    heter: Annotated[RoleSpec | None, says("Heterogeneous trainers.")] = None

    @property
    def roles(self) -> dict[str, RoleSpec]:
        """The roles that are present, in the order of their creation."""
        named = {PS: self.ps, WORKER: self.worker, HETER: self.heter}
        return {name: role for name, role in named.items() if role is not None}

    @property
    def network(self) -> Network:
        """`intranet`, where any unknown word means PodIP."""
        return next((n for n in Network if n == self.intranet), Network.POD_IP)

    @property
    def mode(self) -> Mode:
        """PS with parameter servers, Collective with several workers, otherwise Single."""
        if self.ps is not None:
            return Mode.PS
        return Mode.COLLECTIVE if (self.replicas_of(WORKER) or 0) > 1 else Mode.SINGLE

    def replicas_of(self, role: str) -> int | None:
        """Wanted pods of the role; None when the job has no such role."""
        spec = self.roles.get(role)
        return spec.replicas if spec else None


class RoleStatus(CrdModel):
    """Pods of one role by state."""

    pending: Annotated[int, int32("Not yet started.")] = 0
    starting: Annotated[int, int32("Running, but not all containers are ready.")] = 0
    running: Annotated[int, int32("Running and ready.")] = 0
    failed: Annotated[int, int32("Failed.")] = 0
    succeeded: Annotated[int, int32("Succeeded.")] = 0
    unknown: Annotated[int, int32("Not used.")] = 0
    refs: Annotated[ObjectReferences, says("The pods.")] = Field(default_factory=list)
    succeeded_indexes: Annotated[
        list[int], says("Indexes of the pods that have succeeded: they are not run again when they are gone.")
    ] = Field(default_factory=list)


class JobProgress(CrdModel):
    """How far the training is, as its program says; what it does not say is absent."""

    step: Annotated[int | None, says("Steps done, counted over the whole training.", format="int64")] = None
    total_steps: Annotated[int | None, says("Steps of the whole training.", format="int64")] = None
    epoch: Annotated[int | None, says("Epochs done.", format="int64")] = None
    total_epochs: Annotated[int | None, says("Epochs of the whole training.", format="int64")] = None
    loss: Annotated[float | None, says("The last loss.")] = None
    samples_per_second: Annotated[float | None, says("Throughput of all workers.")] = None
    percent: Annotated[str, says("Finished part, e.g. 42%: of the steps, or else of the epochs.")] = ""
    eta: Annotated[str | None, says("When it will be done at the present speed.", format="date-time")] = None
    updated_at: Annotated[str | None, says("When it was reported.", format="date-time")] = None
    interval_seconds: Annotated[
        float | None, says("Usual time between two reports; from it follows when the job counts as stalled.")
    ] = None


class GangStatus(CrdModel):
    """How the pods are scheduled together."""

    kind: Annotated[
        str,
        says(
            "Volcano, Native (Kubernetes' own), or None: each pod by itself.",
            enum=[k.value for k in GangKind],
        ),
    ] = GangKind.NONE
    pod_group: Annotated[str, says("Name of the PodGroup.")] = ""
    min_available: Annotated[int, int32("Pods that are scheduled together.")] = 0
    phase: Annotated[
        str, says("Volcano's phase of the PodGroup; Native: Pending, or Scheduled once its pods have nodes.")
    ] = ""
    message: Annotated[str, says("Why it is of this kind.")] = ""


class SavedModel(CrdModel):
    """The model that the program reported to have saved."""

    uri: Annotated[str, says("Where it saved the model.")] = ""
    digest: Annotated[str, says("Digest of its files, if the program reported one.")] = ""


class PaddleJobStatus(CommonStatus):
    """The state of the job."""

    phase: Annotated[
        str, says("Pending, Starting, Running, Restarting, Completed, Failed or Terminating.")
    ] = ""
    mode: Annotated[str, says("PS, Collective or Single.")] = ""
    ps: RoleStatus | None = None
    worker: RoleStatus | None = None
    heter: RoleStatus | None = None
    ready: Annotated[
        str, says("Pods that are running and ready, of those wanted, e.g. 3/4; 0/4 at the end.")
    ] = ""
    selector: Annotated[str, says("Label selector of the workers' pods, for autoscalers.")] = ""
    duration: Annotated[str, says("Time from start to end, e.g. 3m20s; written once, at the end.")] = ""
    elastic: Annotated[str, says("NONE, DOING, DONE or ERROR.")] = ""
    start_time: Annotated[str | None, says("First seen Running.", format="date-time")] = None
    completion_time: Annotated[str | None, says("First seen Completed or Failed.", format="date-time")] = None
    results: Annotated[
        dict[str, float], says("Numbers from the termination message of the first worker, by name.")
    ] = Field(default_factory=dict)
    saved_model: Annotated[
        SavedModel | None,
        says("The member model of the termination message of the first worker, of a job with outputModel."),
    ] = None
    epoch: Annotated[
        int, int32("How often the pods were made anew, all together; the first ones have epoch 0.")
    ] = 0
    restarts: Annotated[dict[str, int], says("Restarts by cause.")] = Field(default_factory=dict)
    budgets: Annotated[
        dict[str, int],
        says(
            "Restarts that count against each limit: backoffLimit, disruptions, rule-1 for the first rule ..."
        ),
    ] = Field(default_factory=dict)
    last_restart: Annotated[LastRestart | None, says("The last restart, and its cause.")] = None
    world: Annotated[
        World | None, says("The workers that train, when there is no room for all; see worker.requests.")
    ] = None
    replacing: Annotated[
        list[str], says("Uids of failed pods that are counted and are being replaced, each by itself.")
    ] = Field(default_factory=list)
    progress: Annotated[JobProgress | None, says("How far the training is, as its program says.")] = None
    suspensions: Annotated[int, int32("How often the job was suspended.")] = 0
    gang: Annotated[GangStatus | None, says("Gang scheduling, of jobs that ask for it.")] = None
    stuck_on: Annotated[
        list[str], says("Reasons that the job has been stuck on, each with one fact JobStuck.")
    ] = Field(default_factory=list)

    @property
    def roles(self) -> dict[str, RoleStatus]:
        """The roles that are present, in the order of their creation."""
        named = {PS: self.ps, WORKER: self.worker, HETER: self.heter}
        return {name: role for name, role in named.items() if role is not None}


def last_pod_fits(name: str, role: str, replicas: int) -> bool:
    """The name of the role's last pod is a valid label value."""
    return replicas < 1 or len(f"{name}-{role}-{replicas - 1}") <= LABEL_LENGTH


def _pod_names_fit(role: str) -> Rule:
    """Pod names are label values and names of Services."""
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
    # The first is the original operator's name; Paddle reads the second (older) or the third (newer).
    HETER: (
        "PADDLE_HETER_ENDPOINTS",
        "PADDLE_HETER_TRAINER_IP_PORT_LIST",
        "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST",
    ),
}
"""Variables that list the addresses of all pods of a role."""
_SHORTEST_ENDPOINT = len("1.1.1.1:36000,")
_PORT = len(":36000,")


def endpoints_bytes(name: str, role: str, spec: PaddleJobSpec) -> int:
    """Bytes of the list of a role's addresses, at least: of addresses that are not known yet, the shortest
    ones. 0 for a job that needs no list, or on the nodes' network."""
    replicas = spec.replicas_of(role) or 0
    if spec.elastic or spec.network is Network.HOST:
        return 0
    if spec.network is Network.POD_IP:
        return replicas * _SHORTEST_ENDPOINT
    digits = replicas + sum(max(0, replicas - least) for least in (10, 100, 1000))
    return replicas * (len(f"{name}-{role}-") + _PORT) + digits


def _room(role: str) -> int:
    """Bytes of a list that has a comma after each address. Linux counts the name, '=' and NUL, too, and the
    last address has no comma."""
    return VARIABLE_BYTES - len(max(ENDPOINT_VARIABLES[role], key=len)) - 1


def _endpoints_fit(role: str) -> Rule:
    """All addresses of a role are one variable."""
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
        f"replicas is too large: the addresses of all pods of the role are one variable, {variable}, and"
        f" Linux starts no program with a variable of more than {VARIABLE_BYTES} bytes; lower it, or shorten"
        " metadata.name with spec.intranet Service",
        lambda subject: endpoints_bytes(subject.name, role, subject.spec) <= _room(role),
        field=f".spec.{role}.replicas",
        optionalOldSelf=True,
    )


def _fixed(field: str, remedy: str, *, even_suspended: bool = False) -> Rule:
    """A field that the pods of a running job depend on, and which cannot be changed under them."""
    free = "!has(self.spec) || !has(oldSelf.spec)"
    if not even_suspended:
        free += " || (has(oldSelf.spec.suspend) && oldSelf.spec.suspend)"
    # Only the API server sees a change; a service reads what was let through.
    return rule(
        f"{free} || ({is_as_before(field)})",
        f"{field} cannot be changed: {remedy}",
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
