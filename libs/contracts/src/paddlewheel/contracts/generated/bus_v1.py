# Generated from protos/paddlewheel/bus/v1/bus.proto by `make gen`; do not edit.
"""Commands about the bus itself, which every controller answers."""

from __future__ import annotations

from typing import ClassVar

from paddlewheel.contracts.base import Int64, WireModel


class Rebuild(WireModel):
    """Publish again, under their old ids, all facts that stand in the status of the controller's objects and that its
    stream does not hold: after the stream was lost, or to bring back facts that have grown too old for it. What the
    stream holds is not published again, so that the command may be repeated at any time.
    """

    proto_name: ClassVar[str] = "paddlewheel.bus.v1.Rebuild"



class RebuildReport(WireModel):
    """What one replica did. Every replica answers for the objects it owns; the sum is what the service did."""

    proto_name: ClassVar[str] = "paddlewheel.bus.v1.RebuildReport"

    service: str = ""
    replica: str = ""
    """Name of the replica, as in its Lease."""
    objects: Int64 = 0
    """Objects looked at."""
    facts_checked: Int64 = 0
    """Facts in their status that were looked for in the stream."""
    facts_published: Int64 = 0
    """Facts among them that the stream did not hold, and now holds."""
