"""The custom resources as the API server sees them: names, columns of `kubectl get`, and models."""

from __future__ import annotations

from dataclasses import dataclass

from paddlewheel.contracts.crds.base import CrdModel, Rule
from paddlewheel.contracts.crds.paddlejob import PADDLE_JOB_RULES, PaddleJobSpec, PaddleJobStatus
from paddlewheel.contracts.crds.paddleservice import (
    PADDLE_SERVICE_RULES,
    PaddleServiceSpec,
    PaddleServiceStatus,
)
from paddlewheel.contracts.crds.samplejob import SAMPLE_JOB_RULES, SampleJobSpec, SampleJobStatus
from paddlewheel.contracts.crds.sampleset import SAMPLE_SET_RULES, SampleSetSpec, SampleSetStatus
from paddlewheel.contracts.crds.trigger import TRIGGER_RULES, TriggerSpec, TriggerStatus

GROUP = "batch.paddlepaddle.org"
EVENTS_GROUP = "events.paddlepaddle.org"
SERVING_GROUP = "elasticserving.paddlepaddle.org"


@dataclass(frozen=True)
class Column:
    """One column of `kubectl get`. A column with `is_wide` is shown with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    is_wide: bool = False


REASON = Column("Reason", ".status.reason")
MESSAGE = Column("Message", ".status.message", is_wide=True)
AGE = Column("Age", ".metadata.creationTimestamp", "date")
CATEGORY = "paddle"
"""`kubectl get paddle` shows the objects of all kinds."""


@dataclass(frozen=True)
class Scale:
    """Paths of the subresource `scale`, which `kubectl scale` and autoscalers use.

    Without a `selector` an autoscaler cannot find the pods, so only `kubectl scale` and API clients can
    scale.
    """

    spec: str
    status: str
    selector: str = ""


@dataclass(frozen=True)
class Kind:
    """One custom resource. `scale` is None for kinds that cannot be scaled."""

    kind: str
    plural: str
    version: str
    description: str
    spec: type[CrdModel]
    status: type[CrdModel]
    rules: tuple[Rule, ...]
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    group: str = GROUP
    scale: Scale | None = None

    @property
    def api_version(self) -> str:
        """`group/version`."""
        return f"{self.group}/{self.version}"

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{self.group}"


PADDLE_JOB = Kind(
    kind="PaddleJob",
    plural="paddlejobs",
    version="v1",
    description="A distributed PaddlePaddle training job.",
    spec=PaddleJobSpec,
    status=PaddleJobStatus,
    rules=PADDLE_JOB_RULES,
    columns=(
        Column("Status", ".status.phase"),
        Column("Mode", ".status.mode"),
        Column("Ready", ".status.ready"),
        REASON,
        # A duration that is updated while the job runs would cost an API write for each update. So the column
        # Started shows the age of the run, and the duration is written once, at the end.
        Column("Started", ".status.startTime", "date"),
        Column("Duration", ".status.duration"),
        AGE,
        Column("Progress", ".status.progress.percent", is_wide=True),
        MESSAGE,
    ),
    short_names=("pdj",),
    # Workers are the only role whose number of pods may change while the job runs.
    scale=Scale(".spec.worker.replicas", ".status.worker.running", ".status.selector"),
)

SAMPLE_SET = Kind(
    kind="SampleSet",
    plural="samplesets",
    version="v1alpha1",
    description="A data set, and its cache on the nodes that train with it.",
    spec=SampleSetSpec,
    status=SampleSetStatus,
    rules=SAMPLE_SET_RULES,
    columns=(
        Column("TOTAL SIZE", ".status.cacheStatus.totalSize"),
        Column("CACHED SIZE", ".status.cacheStatus.cachedSize"),
        Column("AVAIL SPACE", ".status.cacheStatus.diskAvail"),
        Column("Runtime", ".status.runtimeStatus.runtimeReady"),
        Column("PHASE", ".status.phase"),
        REASON,
        Column("AGE", ".metadata.creationTimestamp", "date"),
        MESSAGE,
    ),
    short_names=("sset",),
)

SAMPLE_JOB = Kind(
    kind="SampleJob",
    plural="samplejobs",
    version="v1alpha1",
    description="One operation on a SampleSet: sync, warmup, rmr or clear.",
    spec=SampleJobSpec,
    status=SampleJobStatus,
    rules=SAMPLE_JOB_RULES,
    columns=(
        Column("PHASE", ".status.phase"),
        Column("Set", ".spec.sampleSetRef.name"),
        Column("Type", ".spec.type"),
        Column("Done", ".status.progress.percent"),
        REASON,
        AGE,
        Column("ETA", ".status.progress.etaSeconds", "integer", is_wide=True),
        MESSAGE,
    ),
    short_names=("sjob",),
)

TRIGGER = Kind(
    kind="Trigger",
    plural="triggers",
    version="v1alpha1",
    description="Creates a SampleJob or PaddleJob on a fact, a change in an object store, or a schedule.",
    spec=TriggerSpec,
    status=TriggerStatus,
    rules=TRIGGER_RULES,
    columns=(
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        REASON,
        Column("Fired", ".status.fired", "integer"),
        Column("Active", ".status.active", "integer"),
        Column("Waiting", ".status.waiting.events", "integer"),
        Column("Last", ".status.lastFiredTime", "date"),
        AGE,
        Column("Created", ".status.lastChild.name", is_wide=True),
        Column("Skipped", ".status.skipped", "integer", is_wide=True),
        Column("Next", ".status.schedule.next", is_wide=True),
        MESSAGE,
    ),
    short_names=("trg",),
    group=EVENTS_GROUP,
)

PADDLE_SERVICE = Kind(
    kind="PaddleService",
    plural="paddleservices",
    version="v1",
    description="Serves a model or an image over HTTP, with revisions, canaries and autoscaling.",
    spec=PaddleServiceSpec,
    status=PaddleServiceStatus,
    rules=PADDLE_SERVICE_RULES,
    columns=(
        Column("URL", ".status.url"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Traffic", ".status.traffic"),
        REASON,
        AGE,
        Column("Mode", ".status.mode", is_wide=True),
        Column("Replicas", ".status.replicas", "integer", is_wide=True),
        MESSAGE,
    ),
    short_names=("psvc",),
    group=SERVING_GROUP,
    # The original operator names spec.replicas here, a field that its schema does not have.
    scale=Scale(".spec.service.minScale", ".status.replicas", ".status.selector"),
)

PUBLISHED_KINDS = (PADDLE_JOB, SAMPLE_SET, SAMPLE_JOB)
"""The kinds of the original operator. Their objects may have been stored before our rules existed."""

KINDS = (*PUBLISHED_KINDS, TRIGGER, PADDLE_SERVICE)
