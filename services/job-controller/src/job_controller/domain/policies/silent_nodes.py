"""Nodes that may have crashed when a rank failed.

A crashed node counts as lost only after about 50 s. The ranks on other nodes lose their connections at once,
and their programs exit within seconds. A node whose kubelet renewed its Lease after the failure was alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from job_controller.domain.model import Observed
from job_controller.domain.pods import ENDED, Pod
from job_controller.domain.policies.losses import Loss, find_losses
from job_controller.domain.policies.program_end import with_program_ends
from job_controller.timing import CLOCK_SKEW_GRACE_SECONDS, NODE_SILENCE_TIMEOUT_SECONDS
from paddlewheel.contracts.crds.paddlejob import RestartScope
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp, seconds_stamp


@dataclass(frozen=True)
class Doubt:
    """The failure of a rank may follow from the loss of these nodes.

    Args:
        losses: the ranks on nodes whose Lease was read, and was not renewed since the failure.
        until: such a node is lost if its Lease is still not renewed at this time.
    """

    nodes: frozenset[str]
    losses: tuple[Loss, ...]
    until: datetime


def find_doubt(seen: Observed, losses: Sequence[Loss], now: datetime) -> Doubt | None:
    """None when the losses explain themselves, and when all nodes of other ranks are alive."""
    failed_at = _failed_at(seen, losses)
    if failed_at is None or seen.job.scope is RestartScope.POD:
        return None
    if failed_at > now + timedelta(seconds=CLOCK_SKEW_GRACE_SECONDS):
        # The clock of its node is wrong.
        return None
    silent = [pod for pod in _others(seen, losses) if _is_silent(seen, pod, failed_at)]
    if not silent:
        return None
    lost = tuple(_loss(pod, at) for pod in silent if (at := (seen.renewals or {}).get(pod.node)))
    until = failed_at + timedelta(seconds=NODE_SILENCE_TIMEOUT_SECONDS)
    return Doubt(frozenset(pod.node for pod in silent), lost, until)


def nodes_in_doubt(seen: Observed, now: datetime) -> frozenset[str]:
    """The nodes whose Leases have to be read."""
    seen = with_program_ends(seen, now)
    if not any(pod.failure for pod in seen.known_pods):
        return frozenset()
    doubt = find_doubt(seen, find_losses(seen, seen.job.trains), now)
    return doubt.nodes if doubt else frozenset()


def _failed_at(seen: Observed, losses: Sequence[Loss]) -> datetime | None:
    """The time of the first failure, if all are exits of the program."""
    uids = {loss.uid for loss in losses}
    failures = [pod.failure for pod in seen.known_pods if pod.uid in uids and pod.failure]
    are_exits = all(loss.cause is Reason.POD_FAILED and loss.exit_code is not None for loss in losses)
    times = [at for failure in failures if (at := parse_stamp(failure.finished_at))]
    return min(times, default=None) if are_exits else None


def _others(seen: Observed, losses: Sequence[Loss]) -> list[Pod]:
    """The ranks that may have met the failed ones, on nodes whose kubelets have not reported a failure."""
    uids = {loss.uid for loss in losses}
    alive = {pod.node for pod in seen.known_pods if pod.uid in uids}
    ranks = (pod for pod in seen.world_pods if pod.began and not pod.terminating and pod.state not in ENDED)
    return [pod for pod in ranks if pod.node and pod.node not in alive]


def _is_silent(seen: Observed, pod: Pod, since: datetime) -> bool:
    """False if nothing can be known about its node."""
    if seen.renewals is None:
        return False
    if pod.node not in seen.renewals:
        return True
    renewed_at = seen.renewals[pod.node]
    return renewed_at is not None and renewed_at <= since


def _loss(pod: Pod, renewed_at: datetime) -> Loss:
    since = f"which last renewed its Lease at {seconds_stamp(renewed_at)}"
    message = f"pod {pod.name} was lost with its node {pod.node}, {since}"
    return Loss(Reason.NODE_LOST, pod.id.role, pod.uid, None, message)
