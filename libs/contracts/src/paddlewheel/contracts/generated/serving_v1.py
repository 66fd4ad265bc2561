# Generated from protos/paddlewheel/serving/v1/serving.proto by `make gen`; do not edit.
"""Facts about PaddleServices. Subject: pw.evt.serving.<entity>.<fact>.v1.<namespace>.<uid>, where the uid is that of the
PaddleService.

A rollout publishes CanaryStarted, CanaryStepped for each further step, and finally CanaryPromoted or CanaryRolledBack. A
fact can become true several times; the number of the occurrence is a part of its id.

The status keeps a fact with its content until the stream has stored it. If more than 256 facts wait, the oldest ones are
dropped, but never the last occurrence of a fact.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, Int32, Int64, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class Side(WireModel):
    """The figures of one side of a comparison."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.Side"

    requests: Int64 = 0
    """Number of answered requests."""
    errors: Int64 = 0
    """Number of 5xx responses among them."""
    p95_seconds: Double = 0.0
    """95th percentile of the latency in seconds, from a histogram."""
    metrics: dict[str, Double] = {}
    """For the canary, finite measurements (paddlewheel.measurements.v1) of the metrics in the rollout's limits."""


class Statistics(WireModel):
    """The figures on which the decision about a step is based."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.Statistics"

    stable: Side | None = None
    canary: Side | None = None
    p_value: Double = 0.0
    """Probability of such figures if the canary were within its limits, from 0 to 1."""


class ServiceReady(WireModel):
    """The service answers requests: the default revision is ready, and the route leads to it. Published again after every
    ServiceDegraded.
    """

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.ServiceReady"

    service: ObjectRef | None = None
    revision: str = ""
    """Name of the revision that answers."""
    url: str = ""
    """URL for clients outside the cluster; "" without a gateway."""


class ServiceDegraded(WireModel):
    """A service that was ready is not ready."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.ServiceDegraded"

    service: ObjectRef | None = None
    revision: str = ""
    reason: str = ""
    """Why the service is not ready, as one CamelCase word, e.g. CrashLoopBackOff."""
    message: str = ""


class RevisionReady(WireModel):
    """All pods of a new revision are ready for the first time. The revision may not get requests yet."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.RevisionReady"

    service: ObjectRef | None = None
    revision: str = ""


class CanaryStarted(WireModel):
    """A new revision gets its first requests beside the stable one."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.CanaryStarted"

    service: ObjectRef | None = None
    revision: str = ""
    percent: Int32 = 0
    """Percentage of requests that the revision gets."""


class CanaryStepped(WireModel):
    """The canary's share of requests was changed, because the step before has succeeded or a user changed canaryTrafficPercent."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.CanaryStepped"

    service: ObjectRef | None = None
    revision: str = ""
    percent: Int32 = 0
    """Percentage of requests that the revision gets."""
    step: Int32 = 0
    """Number of the step, from 1; 0 for a manual canary."""
    statistics: Statistics | None = None
    """Absent for a manual canary."""


class CanaryPromoted(WireModel):
    """The revision gets all requests, and is the stable revision now."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.CanaryPromoted"

    service: ObjectRef | None = None
    revision: str = ""
    reason: str = ""
    """The cause, as one CamelCase word: Promoted, PromotedByHand, or NothingToCompare if the stable revision answered no
    requests.
    """
    statistics: Statistics | None = None
    """Absent if nothing was measured."""


class CanaryRolledBack(WireModel):
    """The revision gets no requests; the stable revision gets all of them. The revision is not tried again until the spec changes."""

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.CanaryRolledBack"

    service: ObjectRef | None = None
    revision: str = ""
    reason: str = ""
    """The cause, as one CamelCase word: TooManyErrors, TooSlow, MetricOutOfLimits, DeadlineExceeded, RevisionFailed,
    RolledBackByHand or Superseded.
    """
    message: str = ""
    """Explanation of the reason."""
    statistics: Statistics | None = None
    """Absent if nothing was measured."""


class ServiceDeleted(WireModel):
    """The service is being deleted, and its pods with it. The finalizer waits until this fact is stored, at most 600 s while the
    bus is unreachable; then the fact is lost with the object. Terminal.
    """

    proto_name: ClassVar[str] = "paddlewheel.serving.v1.ServiceDeleted"

    service: ObjectRef | None = None
