# Generated from protos/paddlewheel/measurements/v1/measurements.proto by `make gen`; do not edit.
"""Measurements of a PaddleService's revisions, which other programs publish. Subject:
pw.evt.measurements.revision.<fact>.v1.<namespace>.<uid>, where the uid is that of the PaddleService.

Measurements have their own stream, so their publishers cannot displace the facts of serving-controller or use their ids.
The stream keeps the last 256 measurements of each service, of at most 8 KiB each.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class RevisionMeasured(WireModel):
    """A program of the user has measured a revision, e.g. by an offline evaluation or a business metric. If a rollout has limits
    for metrics, it continues once all of them were measured and are within their limits. If a metric was measured several
    times, the measurement with the latest ce-time counts; a ce-time in the future counts as the time of storage. The
    publisher chooses the last part of ce-id, which must differ between measurements.
    """

    proto_name: ClassVar[str] = "paddlewheel.measurements.v1.RevisionMeasured"

    service: ObjectRef | None = None
    """Namespace and name of the PaddleService. Its uid is in the subject."""
    revision: str = ""
    """Name of the revision."""
    metrics: dict[str, Double] = {}
    """Values by name of the metric, of at most 63 characters. NaN and infinities are outside all limits. The last 64 metrics of
    a revision count, and the last 16 revisions of a service.
    """
