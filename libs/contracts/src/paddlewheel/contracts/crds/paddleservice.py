"""PaddleService, elasticserving.paddlepaddle.org/v1: serves a model or an image over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from re import fullmatch
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from paddlewheel.contracts.announcements import Announcement
from paddlewheel.contracts.conditions import explain, render_conditions
from paddlewheel.contracts.crds.base import CrdModel, api_default, int32, is_given, needs, rule, rules, says
from paddlewheel.contracts.crds.common import CommonStatus
from paddlewheel.contracts.crds.limits import PATH_LENGTH, REPLICAS, SERVICE_NAME
from paddlewheel.contracts.crds.models import DIGEST, MODEL_NAME, Word, int_or_string, without_keys
from paddlewheel.contracts.crds.podtemplate import VolumeMounts, Volumes
from paddlewheel.contracts.crds.quantity import Quantities

NAME_LENGTH = 45
"""Characters of a PaddleService's name, at most. `<name>-default-private` and `<name>-<hash>` are names of
Services and label values of at most 63 characters, and Knative appends to them."""

KPA, HPA = "kpa.autoscaling.knative.dev", "hpa.autoscaling.knative.dev"
AUTOSCALERS = {KPA: KPA, HPA: HPA, "kpa": KPA, "hpa": HPA}
"""Accepted values of `service.autoscaler` to Knative's classes of autoscalers."""

Percentage = Annotated[int | float | str, int_or_string(r"^[0-9]+([.][0-9]+)?$")]
Window = Annotated[int | str, int_or_string(r"^([0-9]+|([0-9]+[hms])+)$")]
Time = Annotated[datetime, WithJsonSchema({"type": "string"})]


class ServingMode(StrEnum):
    """The engine that serves: Knative, or plain Deployments."""

    AUTO = "Auto"
    KNATIVE = "Knative"
    KUBERNETES = "Kubernetes"


class RolloutMode(StrEnum):
    """Whether the controller judges a canary, or a person does."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class ModelSecret(CrdModel):
    """A reference to a Secret in the service's namespace."""

    name: Annotated[str, says("Name of the Secret.", minLength=1)] = ""


class ModelSpec(CrdModel):
    """A saved inference model, which paddle-runtime serves."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.uri) || has(self.claim) || has(self.name)",
                "model needs uri, claim or name: where its files are, or the name under which a job"
                " publishes it",
                lambda model: any(is_given(model, field) for field in ("uri", "claim", "name")),
                reason="FieldValueRequired",
            ),
            rule(
                "!(has(self.uri) && has(self.claim))",
                "model has both uri and claim: keep the one that holds the files",
                lambda model: not (is_given(model, "uri") and is_given(model, "claim")),
            ),
        )
    )

    name: Annotated[
        str,
        says(
            "Name of the model, which is part of the addresses of predictions; default: the service's name."
            " Without uri and claim, the service follows the models that jobs publish under this name (fact"
            " ModelPublished).",
            minLength=1,
            maxLength=63,
            pattern=MODEL_NAME,
        ),
    ] = ""
    version: Annotated[
        Word | None, says("Published version to serve, without following newer ones; default: the newest.")
    ] = None
    digest: Annotated[
        str,
        says(
            "Digest of the model's files, sha256:<hex>. Files with another digest are refused, and published"
            " models with another digest are not followed; default: any.",
            pattern=DIGEST,
        ),
    ] = ""
    uri: Annotated[
        str,
        says(
            "Folder of the model in an object store, e.g. s3://models/digits/1.",
            maxLength=PATH_LENGTH,
            **rules(without_keys("uri", "name a Secret in secretRef")),
        ),
    ] = ""
    secret_ref: Annotated[ModelSecret | None, says("Secret with the keys of the object store of uri.")] = None
    claim: Annotated[
        str, says("Name of the PersistentVolumeClaim that holds the model, instead of uri.", maxLength=253)
    ] = ""
    path: Annotated[
        str, says("Folder of the model in the claim; default: the claim's root.", maxLength=PATH_LENGTH)
    ] = ""


class EndpointSpec(CrdModel):
    """An image or a model that answers requests."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.containerImage) || has(self.model)",
                "containerImage is required: name the image to run, or set model to serve a saved model",
                lambda end: is_given(end, "containerImage") or is_given(end, "model"),
                field=".containerImage",
                reason="FieldValueRequired",
            ),
            rule(
                "!has(self.containerImage) || has(self.tag) || self.containerImage.contains('@')",
                "tag is required: name the tag of containerImage",
                lambda end: (
                    not is_given(end, "containerImage") or is_given(end, "tag") or "@" in end.container_image
                ),
                field=".tag",
                reason="FieldValueRequired",
            ),
            rule(
                "has(self.port) || has(self.model)",
                "port is required: name the port on which containerImage listens",
                lambda end: is_given(end, "port") or is_given(end, "model"),
                field=".port",
                reason="FieldValueRequired",
            ),
        )
    )

    container_image: Annotated[
        str, says("Image to run, without its tag, e.g. registry.example.com/digits.", minLength=1)
    ] = ""
    tag: Annotated[Word, says("Tag of the image. Required unless containerImage has a digest.")] = ""
    port: Annotated[
        int | None,
        int32("Port on which the container listens; default: 8080 for a model.", minimum=1, maximum=65535),
    ] = None
    arg: Annotated[
        str, says("Command line that bash runs in the container; default: the image's own entry point.")
    ] = ""
    model: Annotated[ModelSpec | None, says("A saved model to serve, instead of an image.")] = None

    @property
    def image(self) -> str:
        """`containerImage:tag`; "" if there is no image."""
        return f"{self.container_image}:{self.tag}" if self.tag != "" else self.container_image


class AutoscalingSpec(CrdModel):
    """Autoscaling. The fields have the same meaning as in Knative."""

    autoscaler: Annotated[
        str,
        says(
            "Class of the autoscaler: kpa scales by requests, hpa by CPU.",
            enum=list(AUTOSCALERS),
            **api_default(KPA),
        ),
    ] = KPA
    metric: Annotated[
        str,
        says(
            "Metric that target refers to: concurrent requests, requests per second (rps), or CPU.",
            enum=["concurrency", "rps", "cpu"],
            **api_default("concurrency"),
        ),
    ] = "concurrency"
    target: Annotated[
        int,
        int32(
            "Desired value of the metric in each pod: concurrent requests, requests per second, or percent"
            " of the requested CPU.",
            minimum=1,
            **api_default(100),
        ),
    ] = 100
    target_utilization: Annotated[
        Percentage, says("Percent of target at which pods are added.", **api_default("70"))
    ] = "70"
    window: Annotated[
        Window, says("Time over which the metric is averaged, e.g. 60s or 2m.", **api_default("60s"))
    ] = "60s"
    panic_window: Annotated[
        Percentage,
        says(
            "Length of the window that detects a burst of requests, in percent of window.",
            **api_default("10"),
        ),
    ] = "10"
    panic_threshold: Annotated[
        Percentage, says("Percent of target from which on requests count as a burst.", **api_default("200"))
    ] = "200"
    min_scale: Annotated[
        int,
        int32(
            "Minimum number of pods; default: 0, which keeps no pod without requests. In mode Kubernetes one"
            " pod always runs.",
            minimum=0,
            maximum=REPLICAS,
        ),
    ] = 0
    max_scale: Annotated[
        int, int32("Maximum number of pods; default, and 0: no limit.", minimum=0, maximum=REPLICAS)
    ] = 0
    concurrency_limit: Annotated[
        int,
        int32(
            "Maximum number of requests that one pod handles at the same time; default, and 0: no limit."
            " Only in mode Knative.",
            minimum=0,
        ),
    ] = 0


class ResourcesSpec(CrdModel):
    """Resources of the container. The default is CPU 0.2 and memory 512Mi, or the limit if that is lower."""

    requests: Annotated[
        Quantities, says("Resources that are reserved for each pod, e.g. {cpu: 500m, memory: 1Gi}.")
    ] = Field(default_factory=dict)
    limits: Annotated[Quantities, says("Resources that a pod may use at most, e.g. {memory: 2Gi}.")] = Field(
        default_factory=dict
    )


STEP_SECONDS, STEP_REQUESTS = 30, 50
"""Defaults of a step's `minSeconds` and `minRequests`."""


class RolloutStep(CrdModel):
    """One step of a rollout."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".percent", "percent is required: set the percentage of requests for the new revision"),
            # The API server fills in the defaults before it evaluates rules.
            rule(
                "!has(self.percent) || self.percent < 100 ||"
                f" (self.minSeconds == {STEP_SECONDS} && self.minRequests == {STEP_REQUESTS})",
                "minSeconds and minRequests have no effect at 100 percent, which ends the rollout: remove"
                " them",
                lambda step: (
                    step.percent < 100
                    or (step.min_seconds, step.min_requests) == (STEP_SECONDS, STEP_REQUESTS)
                ),
            ),
        )
    )

    percent: Annotated[
        int, int32("Percentage of requests that the new revision gets, e.g. 5.", minimum=1, maximum=100)
    ] = 0
    min_seconds: Annotated[
        int,
        int32(
            "Minimum length of the step in seconds.", minimum=0, maximum=86400, **api_default(STEP_SECONDS)
        ),
    ] = STEP_SECONDS
    min_requests: Annotated[
        int,
        int32(
            "Number of requests that the new revision must answer before the step ends.",
            minimum=1,
            **api_default(STEP_REQUESTS),
        ),
    ] = STEP_REQUESTS


DEFAULT_STEPS = tuple(RolloutStep(percent=percent) for percent in (5, 20, 50, 100))


class MetricLimits(CrdModel):
    """The range in which a metric of the new revision must be."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.min) || has(self.max)",
                "a metric needs min or max: give at least one of them, or remove the metric",
                lambda limits: is_given(limits, "min") or is_given(limits, "max"),
                reason="FieldValueRequired",
            ),
            rule(
                "!has(self.min) || !has(self.max) || self.min <= self.max",
                "min is above max: lower min, or raise max",
                lambda limits: limits.min is None or limits.max is None or limits.min <= limits.max,
                field=".min",
            ),
        )
    )

    min: Annotated[float | None, says("Smallest allowed value; default: no limit.")] = None
    max: Annotated[float | None, says("Largest allowed value; default: no limit.")] = None


METRICS = 10
"""Metrics in the limits of a rollout, at most."""
METRIC_LENGTH = 63
"""Characters of a metric's name, at most."""


class RolloutLimits(CrdModel):
    """Limits of the new revision. The rollout rolls back when they are exceeded."""

    error_rate: Annotated[
        float,
        says(
            "Percentage points by which the new revision's share of 5xx responses may be above that of the"
            " stable one.",
            minimum=0,
            maximum=100,
            **api_default(1),
        ),
    ] = 1.0
    latency: Annotated[
        float,
        says(
            "Factor by which the new revision's p95 latency may be above that of the stable one.",
            minimum=1,
            **api_default(1.5),
        ),
    ] = 1.5
    metrics: Annotated[
        dict[str, MetricLimits],
        says(
            "Limits for metrics of the new revision that your own programs measure and publish as the fact"
            " RevisionMeasured, by name of the metric. A step ends only after all of them were measured.",
            maxProperties=METRICS,
            **rules(
                rule(
                    f"self.all(name, size(name) <= {METRIC_LENGTH})",
                    f"metrics must have names of at most {METRIC_LENGTH} characters: shorten them",
                    lambda metrics: all(len(name) <= METRIC_LENGTH for name in metrics),
                )
            ),
        ),
    ] = Field(default_factory=dict)


class RolloutSpec(CrdModel):
    """The rollout of a new revision. Without it, all requests move as soon as the new revision is ready."""

    mode: Annotated[
        str,
        says(
            "Automatic: the new revision gets its requests in steps, as long as it keeps the limits. Manual:"
            " it gets canaryTrafficPercent.",
            enum=[mode.value for mode in RolloutMode],
            **api_default(RolloutMode.AUTOMATIC.value),
        ),
    ] = RolloutMode.AUTOMATIC
    steps: Annotated[
        tuple[RolloutStep, ...],
        says("Steps in rising order of percent; default: 5, 20, 50 and 100 percent.", maxItems=20),
    ] = ()
    limits: RolloutLimits = RolloutLimits()
    deadline_seconds: Annotated[
        int,
        int32(
            "Seconds without progress after which the rollout is rolled back. A rollout makes no progress"
            " while the new revision is not ready or gets too few requests, or while figures or metrics are"
            " missing.",
            minimum=1,
            **api_default(1800),
        ),
    ] = 1800

    @property
    def wanted_steps(self) -> tuple[RolloutStep, ...]:
        """The steps before the new revision gets all requests."""
        steps = self.steps or DEFAULT_STEPS
        return tuple(step for step in steps if step.percent < 100)

    @property
    def is_automatic(self) -> bool:
        return self.mode == RolloutMode.AUTOMATIC


def _scale_fits(spec: Any) -> bool:
    scale = spec.service
    return scale is None or not scale.max_scale or scale.min_scale <= scale.max_scale


def _steps_rise(spec: Any) -> bool:
    percents = [step.percent for step in spec.rollout.steps] if spec.rollout else []
    return all(low < high for low, high in pairwise(percents))


class PaddleServiceSpec(CrdModel):
    """The desired service."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".default", "default is required: name an image, or a model, that answers requests"),
            rule(
                "!has(self.service) || !has(self.service.minScale) || !has(self.service.maxScale)"
                " || self.service.maxScale == 0 || self.service.minScale <= self.service.maxScale",
                "service.minScale is above service.maxScale: lower minScale, or raise maxScale (0 = no"
                " limit)",
                _scale_fits,
                field=".service.minScale",
            ),
            rule(
                "!has(self.rollout) || !has(self.rollout.steps) || (self.rollout.steps.map(s,"
                " s.percent).isSorted()"
                " && self.rollout.steps.all(a, self.rollout.steps.filter(b, b.percent == a.percent).size()"
                " == 1))",
                "rollout.steps must rise: give each step more percent than the one before it",
                _steps_rise,
                field=".rollout.steps",
            ),
        )
    )

    default: Annotated[EndpointSpec | None, says("The image or model that answers requests.")] = None
    canary: Annotated[
        EndpointSpec | None,
        says("An image or model on trial, which answers canaryTrafficPercent of the requests."),
    ] = None
    canary_traffic_percent: Annotated[
        int | None,
        int32(
            "Percentage of requests that the canary gets; default: 50. It has no effect without a canary.",
            minimum=0,
            maximum=100,
        ),
    ] = None
    runtime_version: Annotated[
        str,
        says(
            "Name of the container. Characters that a name cannot have are replaced by hyphens.", maxLength=63
        ),
    ] = ""
    resources: Annotated[ResourcesSpec | None, says("Resources of the container.")] = None
    service: Annotated[AutoscalingSpec | None, says("Autoscaling.")] = None
    volumes: Annotated[Volumes, says("Volumes of the pods, as in a PodSpec.")] = Field(default_factory=list)
    volume_mounts: Annotated[VolumeMounts, says("Volume mounts of the container, as in a PodSpec.")] = Field(
        default_factory=list
    )
    working_dir: Annotated[
        str, says("Working directory of the container; default: that of the image.", maxLength=PATH_LENGTH)
    ] = ""
    mode: Annotated[
        str,
        says(
            "Engine that serves: Knative, or Kubernetes (Deployments and Gateway API). Auto selects Knative"
            " in clusters that have it, otherwise Kubernetes.",
            enum=[mode.value for mode in ServingMode],
            **api_default(ServingMode.AUTO.value),
        ),
    ] = ServingMode.AUTO
    rollout: Annotated[
        RolloutSpec | None,
        says(
            "Rollout of new revisions in steps; default: all requests move at once when the new revision is"
            " ready."
        ),
    ] = None
    revision_history_limit: Annotated[
        int,
        int32(
            "Number of old revisions that are kept, without pods, so that you can return to them.",
            minimum=0,
            maximum=100,
            **api_default(5),
        ),
    ] = 5

    @property
    def canary_percent(self) -> int:
        """The percentage of requests that the canary gets."""
        return 50 if self.canary_traffic_percent is None else self.canary_traffic_percent

    @property
    def autoscaling(self) -> AutoscalingSpec:
        """`service`, or the defaults if it is absent."""
        return self.service or AutoscalingSpec()


class EndpointStatus(CrdModel):
    """The observed state of an endpoint."""

    name: Annotated[str, says("Name of the endpoint's revision.")] = ""


class AddressStatus(CrdModel):
    """The address of the service in the cluster."""

    url: Annotated[
        str, says("URL of the default endpoint for clients in the cluster. It bypasses the gateway.")
    ] = ""


class ModelStatus(CrdModel):
    """The model that a revision serves."""

    name: Annotated[str, says("Name of the model.")] = ""
    version: Annotated[str, says("Version of the model.")] = ""
    digest: Annotated[str, says("Digest of the model's files, sha256:<hex>.")] = ""
    uri: Annotated[str, says("Folder that holds the model's files.")] = ""


class StartStatus(CrdModel):
    """How long the newest ready pod took to start. All values are seconds since the pod's creation."""

    scheduled: Annotated[float, says("Seconds until the pod was assigned to a node.")] = 0.0
    pulled: Annotated[float, says("Seconds until the images were pulled.")] = 0.0
    loaded: Annotated[float, says("Seconds until the model's files were loaded.")] = 0.0
    ready: Annotated[float, says("Seconds until the pod was ready.")] = 0.0


class RevisionStatus(CrdModel):
    """One immutable revision."""

    name: Annotated[str, says("Name of the revision and of its objects.")] = ""
    number: Annotated[
        int, says("Number of the revision; counts the service's revisions.", format="int64")
    ] = 0
    role: Annotated[str, says("Role of the revision: Stable, Candidate, or Retired.")] = ""
    image: Annotated[str, says("Image of the container.")] = ""
    model: ModelStatus | None = None
    traffic: Annotated[int, int32("Percentage of requests that the revision gets now.")] = 0
    replicas: Annotated[int, int32("Number of the revision's pods.")] = 0
    ready: Annotated[int, int32("Number of the revision's pods that are ready.")] = 0
    since: Annotated[Time | None, says("When the revision was created.", format="date-time")] = None
    was_ready: Annotated[bool, says("Whether all pods of the revision were ready at the same time once.")] = (
        False
    )
    was_stable: Annotated[bool, says("Whether the revision was the stable one, and ready, once.")] = False
    idle_since: Annotated[
        Time | None, says("Since when the revision has received no requests.", format="date-time")
    ] = None
    reason: Annotated[
        str, says("Why the revision is not ready. For a retired revision, its last failure.")
    ] = ""
    message: Annotated[
        str, says("Human-readable explanation of the reason, with the last lines of the container's output.")
    ] = ""
    start: StartStatus | None = None


class SideStatus(CrdModel):
    """Figures of one side of a comparison, the stable revision or the candidate."""

    requests: Annotated[int, says("Number of answered requests.", format="int64")] = 0
    errors: Annotated[int, says("Number of 5xx responses among them.", format="int64")] = 0
    p95: Annotated[float, says("95th percentile of the latency in seconds.")] = 0.0
    metrics: Annotated[
        dict[str, float], says("Published metrics of the candidate (RevisionMeasured), by name.")
    ] = Field(default_factory=dict)

    def __hash__(self) -> int:
        """Announcements, which contain these figures, are members of sets."""
        return hash((self.requests, self.errors, self.p95, frozenset(self.metrics.items())))


class VerdictStatus(CrdModel):
    """The figures on which a rollout's decision is based."""

    stable: SideStatus = SideStatus()
    candidate: SideStatus = SideStatus()
    p_value: Annotated[
        float, says("Probability of such figures if the candidate were within its limits, from 0 to 1.")
    ] = 1.0


class RolloutStatus(CrdModel):
    """The present rollout, or the last one."""

    candidate: Annotated[str, says("Name of the revision on trial.")] = ""
    phase: Annotated[
        str, says("Phase of the rollout: Waiting, Stepping, Serving, RollingBack, or RolledBack.")
    ] = ""
    step: Annotated[int, int32("Number of steps that have begun.")] = 0
    percent: Annotated[int, int32("Percentage of requests that the candidate should get.")] = 0
    started_at: Annotated[Time | None, says("When the rollout began.", format="date-time")] = None
    since: Annotated[
        Time | None, says("When the present step, or the wait before it, began.", format="date-time")
    ] = None
    told: Annotated[
        bool,
        says(
            "Whether CanaryStarted was published for the candidate, and the fact about the canary's end was"
            " not yet."
        ),
    ] = False
    resumed: Annotated[
        int, int32("Number of times that the step began again because the controller had been unavailable.")
    ] = 0
    reason: Annotated[str, says("Why the rollout was rolled back.")] = ""
    message: Annotated[str, says("Human-readable explanation of the reason.")] = ""
    verdict: VerdictStatus | None = None


@dataclass(frozen=True)
class ServingAnnouncement(Announcement):
    """A fact about the service, with the values of its message.

    A status contains the message in `payload` instead. Only facts that an older release recorded have the
    values.
    """

    revision: Annotated[str, says("Name of the revision that the fact is about.")] = ""
    percent: Annotated[int, says("Percentage of requests that the revision gets.")] = 0
    step: Annotated[int, says("Number of the rollout's step.")] = 0
    reason: Annotated[str, says("Why the fact is true, as one CamelCase word.")] = ""
    message: Annotated[str, says("Human-readable explanation of the reason.")] = ""
    verdict: Annotated[
        VerdictStatus | None, says("The figures on which the rollout's decision is based.")
    ] = None

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, populate_by_name=True)


_EXPLAINED_BY = (
    ("Accepted", "False"),
    ("Blocked", "True"),
    ("EngineReady", "False"),
    ("DefaultEndpointReady", "False"),
    ("RoutesReady", "False"),
    ("HeldByHand", "True"),
    ("RolledBack", "True"),
    ("CanaryEndpointReady", "False"),
    ("Progressing", "True"),
    ("Ready", ""),
)


class PaddleServiceStatus(CommonStatus):
    """The observed state of the service."""

    announcements: Annotated[
        tuple[ServingAnnouncement, ...],
        says(
            "Facts to publish on the bus, and the last published fact of each name.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    url: Annotated[str, says("URL of the service for clients outside the cluster.")] = ""
    address: AddressStatus | None = None
    default: EndpointStatus | None = None
    canary: EndpointStatus | None = None
    mode: Annotated[str, says("Engine that serves: Knative or Kubernetes.")] = ""
    phase: Annotated[str, says("Terminating while the service is being deleted, otherwise absent.")] = ""
    traffic: Annotated[str, says("Percentages of requests by revision, for the column Traffic.")] = ""
    replicas: Annotated[int, int32("Number of pods of all revisions.")] = 0
    selector: Annotated[str, says("Label selector of the pods, for autoscalers.")] = ""
    revisions: Annotated[
        tuple[RevisionStatus, ...], says("Revisions of the service, the newest first.", maxItems=128)
    ] = ()
    rollout: RolloutStatus | None = None

    def revision(self, name: str) -> RevisionStatus | None:
        """The revision with this name; None if there is none."""
        return next((r for r in self.revisions if r.name == name), None)

    @property
    def stable(self) -> str:
        """The name of the stable revision; "" if there is none yet."""
        return self.default.name if self.default else ""

    def render(self) -> dict[str, Any]:
        """The whole `status` as JSON, without empty fields."""
        dumped = self.model_dump(mode="json", by_alias=True, exclude={"conditions"})
        return {
            "replicas": self.replicas,
            **_without_empty(dumped),
            **explain(self.conditions, _EXPLAINED_BY),
            "conditions": render_conditions(self.conditions),
        }


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty(item) for name, item in value.items() if item not in (None, "", [], {})}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


PADDLE_SERVICE_RULES = (
    rule(
        "oldSelf.hasValue() || has(self.spec)",
        "spec is required: add spec.default with an image or a model",
        lambda subject: subject.has_spec,
        field=".spec",
        reason="FieldValueRequired",
        optionalOldSelf=True,
    ),
    rule(
        f"oldSelf.hasValue() || (size(self.metadata.name) <= {NAME_LENGTH} &&"
        f" self.metadata.name.matches('{SERVICE_NAME}'))",
        f"metadata.name must have at most {NAME_LENGTH} letters, digits and '-' and begin with a letter,"
        " since the names of Services are made from it: shorten it",
        lambda subject: len(subject.name) <= NAME_LENGTH and bool(fullmatch(SERVICE_NAME, subject.name)),
        field=".metadata.name",
        optionalOldSelf=True,
    ),
)
