"""Reads whether kubelets renew the Leases of their nodes, while a verdict depends on it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from job_controller.core.model import Observed
from job_controller.core.parts import NodeLife
from job_controller.features.silent_nodes.rules import nodes_in_doubt
from job_controller.leases import Leases
from job_controller.reading import Reader
from job_controller.timing import (
    NODE_DOUBT_TIMEOUT_SECONDS,
    NODE_LEASE_GAP_TIMEOUT_SECONDS,
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


class NodeLeases(Reader):
    """The Leases of all nodes on which the verdict about some job depends.

    After a restart, the wait for the renewal of each Lease begins again.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._clock = clock
        self._leases = Leases(
            cluster,
            clock,
            interval=NODE_LEASE_READ_INTERVAL_SECONDS,
            longest_gap=NODE_LEASE_GAP_TIMEOUT_SECONDS,
        )
        self._doubts: dict[Key, _Doubt] = {}

    def __len__(self) -> int:
        return len(self._leases)

    async def read(self, seen: Observed) -> Observed:
        """The same, with the lives of nodes that the verdict depends on."""
        job = seen.job.key
        nodes = nodes_in_doubt(replace(seen, node_lives={}), self._clock.now())
        if not nodes:
            self.forget(job, seen.job.uid)
            return replace(seen, node_lives={})
        known = self._doubts.get(job)
        doubt = _Doubt(known.since if known else self._clock.monotonic(), nodes)
        self._doubts[job] = doubt
        now, since = self._clock.monotonic(), doubt.since
        await self._leases.read(_key(node) for node in nodes if self._told(node, since) is None)
        is_over = now >= since + NODE_DOUBT_TIMEOUT_SECONDS
        hopeless = {node for node in nodes if is_over and self._leases.is_hopeless(_key(node), now)}
        untold = {node: NodeLife.UNKNOWN if node in hopeless else NodeLife.WAITING for node in nodes}
        return replace(seen, node_lives={node: self._told(node, since) or untold[node] for node in nodes})

    def forget(self, key: Key, job_uid: str) -> None:
        """No verdict of the job depends on a node."""
        if self._doubts.pop(key, None):
            self._leases.keep({_key(node) for doubt in self._doubts.values() for node in doubt.nodes})

    def _told(self, node: str, since: float) -> NodeLife | None:
        """None while its Lease does not decide."""
        lease = self._leases.get(_key(node))
        if lease is None:
            return None
        if lease.is_deleted:
            return NodeLife.REMOVED
        if not lease.is_readable:
            return NodeLife.UNKNOWN
        if lease.renewed_after is not None and lease.renewed_after >= since:
            return NodeLife.ALIVE
        return NodeLife.LOST if lease.unchanged_seconds >= NODE_SILENCE_TIMEOUT_SECONDS else None


def _key(node: str) -> Key:
    return Key(NAMESPACE, node)
