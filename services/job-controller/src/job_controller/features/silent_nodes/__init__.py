"""The Leases of nodes distinguish the crash of a node from the failure of a program."""

from __future__ import annotations

from collections.abc import Sequence

from job_controller.core.feature import Doubt, Feature
from job_controller.core.losses import Loss
from job_controller.core.model import Observed
from job_controller.features.silent_nodes.rules import find_doubt


class SilentNodes(Feature):
    """The nodes of ranks whose peers have failed."""

    def doubt(self, seen: Observed, losses: Sequence[Loss]) -> Doubt | None:
        return find_doubt(seen, losses)
