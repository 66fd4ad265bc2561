# Generated from protos/paddlewheel/bus/v1/bus.proto by `make gen`; do not edit.
"""Commands about the bus itself, which every controller answers."""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Int64, WireModel


class Rebuild(WireModel):
    """Republish, under their ids, all facts in the status of the controller's objects that its stream does not have: after
    the stream was lost, or to restore facts that have expired from it. Facts that the stream has are not published again,
    so the command may be repeated at any time.
    """

    proto_name: ClassVar[str] = "paddlewheel.bus.v1.Rebuild"



class RebuildReport(WireModel):
    """The result of one replica. Every replica answers for the objects it owns; the sum is the result of the service."""

    proto_name: ClassVar[str] = "paddlewheel.bus.v1.RebuildReport"

    service: str = ""
    replica: str = ""
    """Name of the replica, as in its Lease."""
    objects: Int64 = 0
    """Objects checked."""
    facts_checked: Int64 = 0
    """Facts in their status that were looked up in the stream."""
    facts_published: Int64 = 0
    """Facts among them that the stream did not have and has now."""
