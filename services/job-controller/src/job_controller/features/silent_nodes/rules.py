"""Nodes that may have crashed when a rank failed.

A crashed node counts as lost only after about 50 s. The ranks on other nodes lose their connections at once,
and their programs exit within seconds. A node whose kubelet renews its Lease after the failure is alive.
Kubernetes deletes the Lease of a node that is removed from the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from job_controller.core.feature import Doubt
from job_controller.core.losses import Loss, find_losses, trains_in
from job_controller.core.model import Observed
from job_controller.core.parts import NodeLife
from job_controller.core.pods import ENDED, Pod
from job_controller.core.program_end import with_program_ends
from job_controller.timing import NODE_SILENCE_TIMEOUT_SECONDS
from paddlewheel.contracts.crds.paddlejob import RestartScope
from paddlewheel.contracts.reasons import Reason


def find_doubt(seen: Observed, losses: Sequence[Loss]) -> Doubt | None:
    """None when the losses explain themselves, and when all nodes of other ranks are alive."""
    lives = seen.node_lives
    if lives is None or seen.job.scope is RestartScope.POD or not all(map(_is_exit, losses)):
        return None
    others = _others(seen, losses)
    lost = tuple(_loss(pod, why) for pod in others if (why := _HOW_LOST.get(lives.get(pod.node))))
    in_doubt = {pod.node for pod in others if lives.get(pod.node, NodeLife.WAITING) is NodeLife.WAITING}
    return Doubt(frozenset(in_doubt), lost) if in_doubt or lost else None


def nodes_in_doubt(seen: Observed, now: datetime) -> frozenset[str]:
    """The nodes whose Leases have to be read."""
    seen = with_program_ends(seen, now)
    if not any(pod.failure for pod in seen.known_pods):
        return frozenset()
    doubt = find_doubt(seen, find_losses(seen))
    return doubt.nodes if doubt else frozenset()


def _is_exit(loss: Loss) -> bool:
    return loss.cause is Reason.POD_FAILED and loss.exit_code is not None


def _others(seen: Observed, losses: Sequence[Loss]) -> list[Pod]:
    """The ranks that may have met the failed ones, on nodes whose kubelets have not reported a failure."""
    uids, trains = {loss.uid for loss in losses}, trains_in(seen)
    alive = {pod.node for pod in seen.known_pods if pod.uid in uids}
    ranks = (pod for pod in seen.pods if pod.began and not pod.terminating and pod.state not in ENDED)
    return [pod for pod in ranks if trains(pod.id) and pod.node and pod.node not in alive]


_HOW_LOST: Mapping[NodeLife | None, str] = {
    NodeLife.LOST: f"which has not renewed its Lease for {NODE_SILENCE_TIMEOUT_SECONDS:g} s",
    NodeLife.REMOVED: "whose Lease was deleted",
}


def _loss(pod: Pod, why: str) -> Loss:
    message = f"pod {pod.name} was lost with its node {pod.node}, {why}"
    return Loss(Reason.NODE_LOST, pod.id.role, pod.uid, None, message)
