# Generated from protos/paddlewheel/serving/v1/serving.proto by `make gen`; do not edit.
"""Facts about PaddleServices. Subject: pw.evt.serving.<entity>.<fact>.v1.<namespace>.<uid>, where the uid is that of the
PaddleService.

A rollout is told by CanaryStarted, a CanaryStepped for each further step, and one of CanaryPromoted and
CanaryRolledBack. A fact can become true again: each occurrence has its own number in its id. A
fact and its content are kept in the status until the stream has stored them; beyond 256 that wait, the oldest repetitions
go, and never the last occurrence of a fact.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, Int64, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class Side(WireModel):
    """What one side of a comparison did while it lasted."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.Side"

    requests: Int64 = 0
    """Answered requests."""
    errors: Int64 = 0
    """Of these, answers 5xx."""
    p95_seconds: Double = 0.0
    """95th percentile of the latency in seconds, from a histogram."""
    metrics: dict[str, Double] = {}
    """Of the canary: the measurements (paddlewheel.measurements.v1) of what the rollout's limits name, where they are finite."""


class Statistics(WireModel):
    """The figures that decided about a step."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.Statistics"

    stable: Side | None = None
    canary: Side | None = None
    p_value: Double = 0.0
    """Chance of such figures from a revision within its limits."""


class ServiceReady(WireModel):
    """Requests are answered: the default revision is ready, and the route leads to it. After every ServiceDegraded again."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.ServiceReady"

    service: ObjectRef | None = None
    revision: str = ""
    """The revision that answers."""
    url: str = ""
    """Where requests from outside the cluster go; "" without a gateway."""


class ServiceDegraded(WireModel):
    """A service that was ready is not any more."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.ServiceDegraded"

    service: ObjectRef | None = None
    revision: str = ""
    reason: str = ""
    """CamelCase, e.g. CrashLoopBackOff."""
    message: str = ""


class RevisionReady(WireModel):
    """All pods of a new revision are ready for the first time. It need not have requests yet."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.RevisionReady"

    service: ObjectRef | None = None
    revision: str = ""


class CanaryStarted(WireModel):
    """A new revision gets its first requests beside the stable one."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.CanaryStarted"

    service: ObjectRef | None = None
    revision: str = ""
    percent: Int32 = 0
    """Requests that it gets."""


class CanaryStepped(WireModel):
    """The canary's share was changed: the step before went well, or somebody changed canaryTrafficPercent."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.CanaryStepped"

    service: ObjectRef | None = None
    revision: str = ""
    percent: Int32 = 0
    step: Int32 = 0
    """Number of the step, from 1; 0 of a manual canary."""
    statistics: Statistics | None = None
    """Absent of a manual canary."""


class CanaryPromoted(WireModel):
    """The revision gets all requests, and is the stable one from now on."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.CanaryPromoted"

    service: ObjectRef | None = None
    revision: str = ""
    reason: str = ""
    """CamelCase: Promoted, PromotedByHand, or NothingToCompare when the revision before it answered nothing."""
    statistics: Statistics | None = None
    """Absent where nothing was measured."""


class CanaryRolledBack(WireModel):
    """The revision gets no requests any more; the stable one gets them all. It is not tried again until the spec changes."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.CanaryRolledBack"

    service: ObjectRef | None = None
    revision: str = ""
    reason: str = ""
    """CamelCase: TooManyErrors, TooSlow, MetricOutOfLimits, DeadlineExceeded, RevisionFailed, RolledBackByHand or Superseded."""
    message: str = ""
    statistics: Statistics | None = None
    """Absent where nothing was measured."""


class ServiceDeleted(WireModel):
    """The object is being deleted, and what serves with it. The service's finalizer waits until this fact is stored, at most
    600 s while the bus is down; after that the fact is lost with the object. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.ServiceDeleted"

    service: ObjectRef | None = None
