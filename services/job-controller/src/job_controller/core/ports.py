"""The port of each pod in the lists of addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from job_controller.core import names
from job_controller.core.model import Job, Observed
from job_controller.core.pods import Pod, PodId, PodState
from paddlewheel.contracts.crds import Network

_HIGHEST = 65535
_PODS_PER_NODE = names.GLOO_OFFSET
"""The first ports of a block; gloo has one of its own."""


def told_port(job: Job) -> int:
    """The base port in the addresses."""
    claimed = job.annotations.get(names.ANNOTATION_HOST_PORT, "") if job.network is Network.HOST else ""
    return parse_port(claimed) or names.BASE_PORT


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
