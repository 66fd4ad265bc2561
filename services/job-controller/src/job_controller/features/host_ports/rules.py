"""Which block of ports a job on the hosts' network owns, and which of them each of its pods uses."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from job_controller.core import names
from job_controller.core.model import Job, Observed, PortClaim
from job_controller.core.pods import Pod, PodId, PodState
from paddlewheel.contracts.crds import Network

_HIGHEST = 65535
_PODS_PER_NODE = names.GLOO_OFFSET
"""The first ports of a block; gloo has one of its own."""


@dataclass(frozen=True)
class PortBlock:
    """The block of ports that a job is to claim.

    Args:
        port: its first port; None claims nothing.
        is_firm: no other job can have it, so pods may use it.
        is_exhausted: pods wait until another job leaves a block.
    """

    port: int | None
    is_firm: bool = True
    is_exhausted: bool = False


def claim_ports(seen: Observed, port_range: tuple[int, int]) -> PortBlock:
    """Claim first, look again, create pods later.

    Of several jobs that claim one block at the same time, the last one sees the claims of all others when the
    watch reports its own. The others may or may not, so whoever sees another claim leaves the block.
    """
    job = seen.job
    if job.network is not Network.HOST:
        return PortBlock(names.BASE_PORT)
    own = parse_port(job.annotations.get(names.ANNOTATION_HOST_PORT, ""))
    if own is not None and (seen.pods or seen.old_pods):
        return PortBlock(own)
    if own is not None and not _rivals(own, seen.port_claims):
        return PortBlock(own, is_firm=seen.is_reported)
    drawn = _free_block(job, own, seen.port_claims, port_range)
    if drawn is not None:
        return PortBlock(drawn, is_firm=False)
    return PortBlock(own if _is_oldest(job, own, seen.port_claims) else None, is_exhausted=True)


def port_key(pod: PodId) -> str:
    """Of the pod's own port in the ConfigMap; a legal name of a variable, as `envFrom` asks."""
    return f"PADDLE_PORT_{pod.role.upper()}_{pod.ordinal}"


def pod_ports(seen: Observed, base: int) -> Mapping[PodId, int] | None:
    """The port of every wanted pod: the base port, unless another pod of the job on its node has it.

    A pod alone on its node has the base port, for older launchers of Paddle assume the same one everywhere.

    Returns:
        None while a node has more pods of the job than the block has ports.
    """
    if not _shares_nodes(seen.job):
        return dict.fromkeys(seen.job.pod_ids, base)
    nodes = _pods_by_node(seen)
    if any(len(pods) > _PODS_PER_NODE for pods in nodes.values()):
        return None
    block = range(base, base + _PODS_PER_NODE)
    config = seen.config or {}
    # A pod that has succeeded may be gone.
    ports = {pod: _told(config, pod, block) or base for pod in seen.job.pod_ids}
    for pods in nodes.values():
        ports |= _ports_on_node(pods, config, block)
    return ports


def crowded_node(seen: Observed) -> str:
    """Why pods cannot have ports of their own, "" when they can."""
    if not _shares_nodes(seen.job):
        return ""
    for node, pods in _pods_by_node(seen).items():
        if len(pods) > _PODS_PER_NODE:
            return (
                f"{len(pods)} pods of the job are on node {node}, and its host ports suffice for "
                f"{_PODS_PER_NODE}; spread them by a podAntiAffinity or topologySpreadConstraints"
            )
    return ""


def _shares_nodes(job: Job) -> bool:
    """Its pods have the addresses of their nodes, and are told those of the others."""
    return job.network is Network.HOST and not job.elastic


def _pods_by_node(seen: Observed) -> Mapping[str, list[Pod]]:
    """Wanted pods by their node's address."""
    nodes: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in seen.pods:
        if pod.id in seen.job.wanted and pod.ip and not pod.terminating:
            nodes[pod.ip].append(pod)
    return nodes


def _ports_on_node(pods: Iterable[Pod], config: Mapping[str, str], block: range) -> dict[PodId, int]:
    """A pod keeps the port that it was told; of two with the same one, the pod that has started does."""
    ports: dict[PodId, int] = {}
    for pod in sorted(pods, key=_seniority):
        told = _told(config, pod.id, block)
        if told is not None and told not in ports.values():
            ports[pod.id] = told
    free = (port for port in block if port not in ports.values())
    return ports | {pod.id: next(free) for pod in sorted(pods, key=_seniority) if pod.id not in ports}


def _told(config: Mapping[str, str], pod: PodId, block: range) -> int | None:
    port = parse_port(config.get(port_key(pod), ""))
    return port if port in block else None


def _seniority(pod: Pod) -> tuple[object, ...]:
    return not (pod.released or pod.began), pod.state is PodState.PENDING, pod.id


def parse_port(text: str) -> int | None:
    """A usable first port of a block, else None."""
    # An annotation may hold more digits than `int` takes.
    if not text.isdecimal() or len(text) > len(str(_HIGHEST)):
        return None
    port = int(text)
    return port if 0 < port <= _HIGHEST - names.PORTS_PER_POD + 1 else None


def _rivals(port: int, claims: tuple[PortClaim, ...]) -> tuple[PortClaim, ...]:
    return tuple(claim for claim in claims if _overlap(port, claim.first_port))


def _is_oldest(job: Job, own: int | None, claims: tuple[PortClaim, ...]) -> bool:
    """Of the jobs that claim the last block one must stay, or each would wait for the others."""
    mine = (job.created_at, job.uid)
    return own is not None and all(mine < (c.created_at, c.uid) for c in _rivals(own, claims))


def _free_block(
    job: Job, left: int | None, claims: tuple[PortClaim, ...], port_range: tuple[int, int]
) -> int | None:
    """Start at a place given by the uid and by the block that the job leaves, so that jobs rarely try for the
    same block, nor again for the same next one."""
    low, high = port_range
    blocks = range(low + names.PORTS_PER_POD, high - names.PORTS_PER_POD + 1, names.PORTS_PER_POD)
    if not blocks:
        return None
    seed = f"{job.uid}/{left}" if left else job.uid
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % len(blocks)
    around = (blocks[(start + step) % len(blocks)] for step in range(len(blocks)))
    return next((block for block in around if not _rivals(block, claims)), None)


def _overlap(one: int, other: int) -> bool:
    return abs(one - other) < names.PORTS_PER_POD
