"""PaddleService, elasticserving.paddlepaddle.org/v1: a model or an image that answers requests, and its
updates."""

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
"""Characters of a PaddleService's name: `<name>-default-private` and `<name>-<hash>` are names of Services
and values of labels, to which Knative adds words of its own."""

KPA, HPA = "kpa.autoscaling.knative.dev", "hpa.autoscaling.knative.dev"
AUTOSCALERS = {KPA: KPA, HPA: HPA, "kpa": KPA, "hpa": HPA}
"""Words of `service.autoscaler`, and what they mean."""

Percentage = Annotated[int | float | str, int_or_string(r"^[0-9]+([.][0-9]+)?$")]
Window = Annotated[int | str, int_or_string(r"^([0-9]+|([0-9]+[hms])+)$")]
Time = Annotated[datetime, WithJsonSchema({"type": "string"})]


class ServingMode(StrEnum):
    """What serves."""

    AUTO = "Auto"
    KNATIVE = "Knative"
    KUBERNETES = "Kubernetes"


class RolloutMode(StrEnum):
    """Who judges a canary."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class ModelSecret(CrdModel):
    """A Secret of the service's namespace."""

    name: Annotated[str, says("Name of the Secret.", minLength=1)] = ""


class ModelSpec(CrdModel):
    """A saved inference model, served by the Paddle runtime."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.uri) || has(self.claim) || has(self.name)",
                "model needs uri, claim or name: say where its files are, or the name under which it is"
                " published",
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
            "Name in predictions' addresses, and of the facts ModelPublished that are followed while neither"
            " uri nor"
            " claim is given; default: the service's name.",
            minLength=1,
            maxLength=63,
            pattern=MODEL_NAME,
        ),
    ] = ""
    version: Annotated[Word | None, says("Published version that is kept; absent = the newest.")] = None
    digest: Annotated[
        str,
        says(
            "The files' digest; other files are refused, and other publications not followed.",
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
    secret_ref: Annotated[ModelSecret | None, says("Keys of the object store.")] = None
    claim: Annotated[str, says("PersistentVolumeClaim that holds the model.", maxLength=253)] = ""
    path: Annotated[str, says("Folder of the model in the claim.", maxLength=PATH_LENGTH)] = ""


class EndpointSpec(CrdModel):
    """What answers: an image, or a model."""

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

    container_image: Annotated[str, says("Image without its tag.", minLength=1)] = ""
    tag: Annotated[Word, says("Tag of the image.")] = ""
    port: Annotated[
        int | None, int32("Port on which the container listens; of a model 8080.", minimum=1, maximum=65535)
    ] = None
    arg: Annotated[
        str, says("Shell line that bash runs in the container; empty = the image's own entry point.")
    ] = ""
    model: Annotated[ModelSpec | None, says("A saved model instead of an image.")] = None

    @property
    def image(self) -> str:
        """`containerImage:tag`; "" when none is named."""
        return f"{self.container_image}:{self.tag}" if self.tag != "" else self.container_image


class AutoscalingSpec(CrdModel):
    """How many pods run. The values of Knative's autoscaler, with the same meaning."""

    autoscaler: Annotated[
        str,
        says(
            "Knative's autoscaler: by requests (kpa) or by CPU (hpa).",
            enum=list(AUTOSCALERS),
            **api_default(KPA),
        ),
    ] = KPA
    metric: Annotated[
        str,
        says(
            "What target counts.",
            enum=["concurrency", "rps", "cpu"],
            **api_default("concurrency"),
        ),
    ] = "concurrency"
    target: Annotated[
        int,
        int32(
            "Wanted value of the metric in each pod: requests, requests a second, or percent of the"
            " requested CPU.",
            minimum=1,
            **api_default(100),
        ),
    ] = 100
    target_utilization: Annotated[
        Percentage, says("Percent of target at which pods are added.", **api_default("70"))
    ] = "70"
    window: Annotated[Window, says("Time over which the metric is averaged.", **api_default("60s"))] = "60s"
    panic_window: Annotated[
        Percentage, says("Percent of window that is looked at in a burst.", **api_default("10"))
    ] = "10"
    panic_threshold: Annotated[
        Percentage, says("Percent of target that makes a burst.", **api_default("200"))
    ] = "200"
    min_scale: Annotated[
        int,
        int32("Fewest pods. 0 = none without requests (in mode Kubernetes: 1).", minimum=0, maximum=REPLICAS),
    ] = 0
    max_scale: Annotated[int, int32("Most pods; 0 = no limit.", minimum=0, maximum=REPLICAS)] = 0
    concurrency_limit: Annotated[
        int,
        int32("Requests that one pod handles at a time, at most, in mode Knative; 0 = no limit.", minimum=0),
    ] = 0


class ResourcesSpec(CrdModel):
    """Resources of the container. What is absent: CPU 0.2 and memory 512Mi, never above the limit given."""

    requests: Annotated[Quantities, says("Reserved for each pod.")] = Field(default_factory=dict)
    limits: Annotated[Quantities, says("Most that a pod may use.")] = Field(default_factory=dict)


STEP_SECONDS, STEP_REQUESTS = 30, 50
"""What a step takes at least, where it does not say."""


class RolloutStep(CrdModel):
    """One step of a rollout."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(".percent", "percent is required: say how many requests the new revision gets"),
            # The API server has filled in the defaults.
            rule(
                "!has(self.percent) || self.percent < 100 ||"
                f" (self.minSeconds == {STEP_SECONDS} && self.minRequests == {STEP_REQUESTS})",
                "minSeconds and minRequests have no effect at 100 percent, which ends the rollout: leave them"
                " out",
                lambda step: (
                    step.percent < 100
                    or (step.min_seconds, step.min_requests) == (STEP_SECONDS, STEP_REQUESTS)
                ),
            ),
        )
    )

    percent: Annotated[int, int32("Requests that the new revision gets.", minimum=1, maximum=100)] = 0
    min_seconds: Annotated[
        int,
        int32("Seconds that the step takes at least.", minimum=0, maximum=86400, **api_default(STEP_SECONDS)),
    ] = STEP_SECONDS
    min_requests: Annotated[
        int,
        int32("Requests that the new revision has to answer.", minimum=1, **api_default(STEP_REQUESTS)),
    ] = STEP_REQUESTS


DEFAULT_STEPS = tuple(RolloutStep(percent=percent) for percent in (5, 20, 50, 100))


class MetricLimits(CrdModel):
    """Between which values a metric of the new revision must be."""

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

    min: Annotated[float | None, says("Least value.")] = None
    max: Annotated[float | None, says("Largest value.")] = None


METRICS = 10
"""Metrics in the limits of a rollout, at most."""
METRIC_LENGTH = 63
"""Characters of a metric's name, at most."""


class RolloutLimits(CrdModel):
    """What the new revision may do worse than the stable one."""

    error_rate: Annotated[
        float,
        says(
            "Percentage points by which its share of 5xx answers may be higher.",
            minimum=0,
            maximum=100,
            **api_default(1),
        ),
    ] = 1.0
    latency: Annotated[
        float, says("Factor by which its p95 latency may be higher.", minimum=1, **api_default(1.5))
    ] = 1.5
    metrics: Annotated[
        dict[str, MetricLimits],
        says(
            "Of it alone, by name of the metric: what others have measured and published (RevisionMeasured)."
            " No step ends before all of them were measured.",
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
    """How a change reaches the users. Absent: at once, as soon as the new revision is ready."""

    mode: Annotated[
        str,
        says(
            "Automatic: in steps, judged by limits. Manual: as canaryTrafficPercent says.",
            enum=[mode.value for mode in RolloutMode],
            **api_default(RolloutMode.AUTOMATIC.value),
        ),
    ] = RolloutMode.AUTOMATIC
    steps: Annotated[
        tuple[RolloutStep, ...],
        says("In this order, 100 percent last; default: 5, 20, 50 and 100.", maxItems=20),
    ] = ()
    limits: RolloutLimits = RolloutLimits()
    deadline_seconds: Annotated[
        int,
        int32(
            "Seconds without progress, for want of readiness, requests, figures or metrics, after which the"
            " change is rolled back.",
            minimum=1,
            **api_default(1800),
        ),
    ] = 1800

    @property
    def wanted_steps(self) -> tuple[RolloutStep, ...]:
        """The steps before everything goes to the new revision."""
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
    """What to serve."""

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

    default: Annotated[EndpointSpec | None, says("What answers requests.")] = None
    canary: Annotated[EndpointSpec | None, says("What answers some of them, as a trial.")] = None
    canary_traffic_percent: Annotated[
        int | None,
        int32(
            "Requests that the canary gets; default with a canary: 50, without one unused.",
            minimum=0,
            maximum=100,
        ),
    ] = None
    runtime_version: Annotated[
        str, says("Name of the container; what a name cannot have becomes a hyphen.", maxLength=63)
    ] = ""
    resources: Annotated[ResourcesSpec | None, says("Resources of the container.")] = None
    service: Annotated[AutoscalingSpec | None, says("Autoscaling.")] = None
    volumes: Annotated[Volumes, says("Volumes of the pods.")] = Field(default_factory=list)
    volume_mounts: Annotated[VolumeMounts, says("Mounts of the container.")] = Field(default_factory=list)
    working_dir: Annotated[str, says("Working directory of the container.", maxLength=PATH_LENGTH)] = ""
    mode: Annotated[
        str,
        says(
            "What serves. Auto: Knative where the cluster has it, otherwise Deployments and Gateway API.",
            enum=[mode.value for mode in ServingMode],
            **api_default(ServingMode.AUTO.value),
        ),
    ] = ServingMode.AUTO
    rollout: Annotated[RolloutSpec | None, says("How a change reaches the users.")] = None
    revision_history_limit: Annotated[
        int,
        int32(
            "Old revisions that are kept, without pods, for a return.",
            minimum=0,
            maximum=100,
            **api_default(5),
        ),
    ] = 5

    @property
    def canary_percent(self) -> int:
        """Requests that the canary gets in percent."""
        return 50 if self.canary_traffic_percent is None else self.canary_traffic_percent

    @property
    def autoscaling(self) -> AutoscalingSpec:
        """With the defaults where nothing is given."""
        return self.service or AutoscalingSpec()


class EndpointStatus(CrdModel):
    """One endpoint."""

    name: Annotated[str, says("Its revision.")] = ""


class AddressStatus(CrdModel):
    """An address in the cluster."""

    url: Annotated[str, says("URL of the default endpoint in the cluster, past the gateway.")] = ""


class ModelStatus(CrdModel):
    """The model that a revision serves."""

    name: Annotated[str, says("Name of the model.")] = ""
    version: Annotated[str, says("Its version.")] = ""
    digest: Annotated[str, says("Digest of its files.")] = ""
    uri: Annotated[str, says("Where its files are.")] = ""


class StartStatus(CrdModel):
    """Seconds that the start of the newest ready pod took."""

    scheduled: Annotated[float, says("Until it had a node.")] = 0.0
    pulled: Annotated[float, says("Until its images were there.")] = 0.0
    loaded: Annotated[float, says("Until the model's files were there.")] = 0.0
    ready: Annotated[float, says("Until it answered.")] = 0.0


class RevisionStatus(CrdModel):
    """One immutable revision."""

    name: Annotated[str, says("Name of the revision and of its objects.")] = ""
    number: Annotated[int, says("Counts the service's revisions.", format="int64")] = 0
    role: Annotated[str, says("Stable, Candidate, or Retired.")] = ""
    image: Annotated[str, says("Image of the container.")] = ""
    model: ModelStatus | None = None
    traffic: Annotated[int, int32("Requests that it gets now, in percent.")] = 0
    replicas: Annotated[int, int32("Its pods.")] = 0
    ready: Annotated[int, int32("Of these, ready ones.")] = 0
    since: Annotated[Time | None, says("When it was made.", format="date-time")] = None
    was_ready: Annotated[bool, says("All its pods were ready once.")] = False
    was_stable: Annotated[bool, says("It was the stable revision, ready.")] = False
    idle_since: Annotated[Time | None, says("Since when it has had no requests.", format="date-time")] = None
    reason: Annotated[str, says("Why it is not ready; of a retired one, its last failure.")] = ""
    message: Annotated[str, says("The same in words, with the last lines of the container.")] = ""
    start: StartStatus | None = None


class SideStatus(CrdModel):
    """What one side of a comparison did."""

    requests: Annotated[int, says("Answered requests.", format="int64")] = 0
    errors: Annotated[int, says("Of these, 5xx answers.", format="int64")] = 0
    p95: Annotated[float, says("95th percentile of the latency in seconds.")] = 0.0
    metrics: Annotated[dict[str, float], says("Of the candidate: what others have measured, by name.")] = (
        Field(default_factory=dict)
    )

    def __hash__(self) -> int:
        """Facts with figures are members of sets."""
        return hash((self.requests, self.errors, self.p95, frozenset(self.metrics.items())))


class VerdictStatus(CrdModel):
    """The figures that decided."""

    stable: SideStatus = SideStatus()
    candidate: SideStatus = SideStatus()
    p_value: Annotated[float, says("Chance of such figures from a revision within its limits.")] = 1.0


class RolloutStatus(CrdModel):
    """The change that is under way, or the last one."""

    candidate: Annotated[str, says("The revision on trial.")] = ""
    phase: Annotated[str, says("Waiting, Stepping, Serving, RollingBack, or RolledBack.")] = ""
    step: Annotated[int, int32("Steps begun.")] = 0
    percent: Annotated[int, int32("Requests that the candidate should get.")] = 0
    started_at: Annotated[Time | None, says("When it began.", format="date-time")] = None
    since: Annotated[Time | None, says("When the step, or the waiting, began.", format="date-time")] = None
    told: Annotated[bool, says("CanaryStarted was told of the candidate, and its end was not.")] = False
    resumed: Annotated[int, int32("How often the step began anew because the controller had been away.")] = 0
    reason: Annotated[str, says("Why it was rolled back.")] = ""
    message: Annotated[str, says("The same in words.")] = ""
    verdict: VerdictStatus | None = None


@dataclass(frozen=True)
class ServingAnnouncement(Announcement):
    """A fact of the service with the parts of its message.

    In a status, `payload` is the message instead. Facts of an older release still have the parts.
    """

    revision: Annotated[str, says("The revision it is about.")] = ""
    percent: Annotated[int, says("Requests that the revision gets.")] = 0
    step: Annotated[int, says("Number of the step.")] = 0
    reason: Annotated[str, says("Why.")] = ""
    message: Annotated[str, says("The same in words.")] = ""
    verdict: Annotated[VerdictStatus | None, says("The figures that decided.")] = None

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
    """State of the service."""

    announcements: Annotated[
        tuple[ServingAnnouncement, ...],
        says(
            "Facts to publish on the bus, and the last published one of each name.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    url: Annotated[str, says("Where requests from outside the cluster go.")] = ""
    address: AddressStatus | None = None
    default: EndpointStatus | None = None
    canary: EndpointStatus | None = None
    mode: Annotated[str, says("What serves: Knative or Kubernetes.")] = ""
    phase: Annotated[str, says("Terminating while the service is being deleted.")] = ""
    traffic: Annotated[str, says("Percent of the requests by revision.")] = ""
    replicas: Annotated[int, int32("Pods of all revisions.")] = 0
    selector: Annotated[str, says("Label selector of the pods.")] = ""
    revisions: Annotated[tuple[RevisionStatus, ...], says("Newest first.", maxItems=128)] = ()
    rollout: RolloutStatus | None = None

    def revision(self, name: str) -> RevisionStatus | None:
        """The revision of this name."""
        return next((r for r in self.revisions if r.name == name), None)

    @property
    def stable(self) -> str:
        """Name of the stable revision, "" before there is one."""
        return self.default.name if self.default else ""

    def render(self) -> dict[str, Any]:
        """The whole `status` as JSON, without fields that are empty."""
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
        f" since the"
        " names of Services are made from it: shorten it",
        lambda subject: len(subject.name) <= NAME_LENGTH and bool(fullmatch(SERVICE_NAME, subject.name)),
        field=".metadata.name",
        optionalOldSelf=True,
    ),
)
