"""Reads whether kubelets renew the Leases of their nodes, while a verdict depends on it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from job_controller.domain.model import NodeLife, Observed
from job_controller.domain.policies.silent_nodes import nodes_in_doubt
from job_controller.leases import Leases
from job_controller.timing import (
    NODE_DOUBT_TIMEOUT_SECONDS,
    NODE_LEASE_READ_INTERVAL_SECONDS,
    NODE_SILENCE_TIMEOUT_SECONDS,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.kube.ports import Cluster

NAMESPACE = "kube-node-lease"


class _Doubt(NamedTuple):
    """A job's verdict depends on these nodes since this time on the monotonic clock."""

    since: float
    nodes: frozenset[str]


class NodeLeases:
    """The Leases of all nodes on which the verdict about some job depends."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._clock = clock
        self._leases = Leases(cluster, clock, NODE_LEASE_READ_INTERVAL_SECONDS)
        self._doubts: dict[Key, _Doubt] = {}

    def __len__(self) -> int:
        return len(self._leases)

    async def read(self, seen: Observed) -> Observed:
        """The same, with the lives of nodes that the verdict depends on."""
        job = seen.job.key
        nodes = nodes_in_doubt(replace(seen, node_lives={}), self._clock.now())
        if not nodes:
            self.forget(job)
            return replace(seen, node_lives={})
        known = self._doubts.get(job)
        doubt = _Doubt(known.since if known else self._clock.monotonic(), nodes)
        self._doubts[job] = doubt
        waiting = (node for node in nodes if self._life(node, doubt.since) is NodeLife.WAITING)
        await self._leases.read(map(_key, waiting))
        return replace(seen, node_lives={node: self._life(node, doubt.since) for node in nodes})

    def forget(self, job: Key) -> None:
        """No verdict of the job depends on a node."""
        if self._doubts.pop(job, None):
            self._leases.keep({_key(node) for doubt in self._doubts.values() for node in doubt.nodes})

    def _life(self, node: str, since: float) -> NodeLife:
        lease = self._leases.get(_key(node))
        if lease is not None and lease.is_deleted:
            return NodeLife.REMOVED
        if lease is not None and not lease.is_readable:
            return NodeLife.UNKNOWN
        if lease is not None and lease.renewed_after is not None and lease.renewed_after >= since:
            return NodeLife.ALIVE
        if lease is not None and lease.unchanged_seconds >= NODE_SILENCE_TIMEOUT_SECONDS:
            return NodeLife.LOST
        is_over = self._clock.monotonic() >= since + NODE_DOUBT_TIMEOUT_SECONDS
        return NodeLife.UNKNOWN if is_over else NodeLife.WAITING


def _key(node: str) -> Key:
    return Key(NAMESPACE, node)
