# Generated from protos/paddlewheel/measurements/v1/measurements.proto by `make gen`; do not edit.
"""What others have measured of the revisions of PaddleServices. Subject:
pw.evt.measurements.revision.<fact>.v1.<namespace>.<uid>, where the uid is that of the PaddleService. In a stream of its own,
which keeps the last 256 of each service, of at most 8 KiB each: who measures can neither push out the facts of
serving-controller nor take their ids.
"""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Double, WireModel
from paddlewheel.contracts.generated.common_v1 import ObjectRef


class RevisionMeasured(WireModel):
    """Somebody outside has measured a revision: an offline evaluation, a business metric. A rollout whose limits name metrics
    goes on once all of them were measured and are within their limits. Of several measurements of a metric the one with
    the latest ce-time counts; a ce-time in the future counts as the time of storage. The last part of ce-id is up to the
    publisher; it differs between measurements.
    """

    proto_name: ClassVar[str] = "paddlewheel.measurements.v1.RevisionMeasured"

    service: ObjectRef | None = None
    """Namespace and name; the subject has the uid."""
    revision: str = ""
    metrics: dict[str, Double] = {}
    """By name, of at most 63 characters. NaN and infinities are outside all limits. Of each revision the 64 metrics that were
    measured last count, of each service the 16 revisions.
    """
