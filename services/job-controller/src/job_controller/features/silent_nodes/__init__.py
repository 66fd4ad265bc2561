"""The crash of a node is told apart from the failure of a program by the Leases of nodes."""

from __future__ import annotations

from collections.abc import Sequence

from job_controller.core.feature import Doubt, Feature
from job_controller.core.losses import Loss
from job_controller.core.model import Observed
from job_controller.features.silent_nodes.rules import find_doubt


class SilentNodes(Feature):
    """The nodes of ranks whose peers have failed."""

    def applies_to(self, seen: Observed) -> bool:
        return any(pod.failure or pod.program_end for pod in seen.known_pods)

    def doubt(self, seen: Observed, losses: Sequence[Loss]) -> Doubt | None:
        return find_doubt(seen, losses)
