# Generated from protos/paddlewheel/bus/v1/bus.proto by `make gen`; do not edit.
"""Commands about the bus itself. Every controller handles them."""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Int64, WireModel


class Rebuild(WireModel):
    """Publish again, under the same ids, all facts in the status of the controller's objects that its stream does not have.
    Send it after the stream was lost, or to restore facts that have expired. Facts that the stream has are not published
    again, so the command may be repeated at any time.
    """

    proto_name: ClassVar[str] = "paddlewheel.bus.v1.Rebuild"



class RebuildReport(WireModel):
    """The result of one replica. Each replica answers for the objects that it owns; the sum of all answers is the result of
    the service.
    """

    proto_name: ClassVar[str] = "paddlewheel.bus.v1.RebuildReport"

    service: str = ""
    replica: str = ""
    """Name of the replica, as in its Lease."""
    objects: Int64 = 0
    """Number of objects that were checked."""
    facts_checked: Int64 = 0
    """Number of facts in their status that were looked up in the stream."""
    facts_published: Int64 = 0
    """Number of these facts that the stream did not have, and that were published."""
