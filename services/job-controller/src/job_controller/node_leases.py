"""Reads when the kubelets of nodes last renewed their Leases, while a verdict depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from job_controller.domain.model import Observed
from job_controller.domain.policies.silent_nodes import nodes_in_doubt
from job_controller.timing import NODE_LEASE_READ_INTERVAL_SECONDS
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import spec_of
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube.ports import LEASES, Cluster
from paddlewheel.operator.concurrency import gather_bounded

NAMESPACE = "kube-node-lease"


class _Answer(NamedTuple):
    """The time of the last renewal, and the monotonic time of the read."""

    renewed_at: datetime | None
    read_at: float


class NodeLeases:
    """Remembers the answers for each job until its verdict."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._answers: dict[Key, dict[str, _Answer]] = {}

    async def read(self, seen: Observed) -> Observed:
        """The same, with the renewals of nodes that the verdict depends on."""
        answers = self._answers.get(seen.job.key, {})
        seen = replace(seen, renewals=_renewals(answers))
        doubted = nodes_in_doubt(seen, self._clock.now())
        if not doubted:
            self.forget(seen.job.key)
            return seen
        answers = self._answers.setdefault(seen.job.key, answers)
        due = [node for node in doubted if self._is_due(answers.get(node))]
        await gather_bounded(self._ask(node, answers) for node in due)
        return replace(seen, renewals=_renewals(answers))

    def forget(self, job: Key) -> None:
        """No verdict of the job depends on a node."""
        self._answers.pop(job, None)

    def _is_due(self, answer: _Answer | None) -> bool:
        return answer is None or self._clock.monotonic() >= answer.read_at + NODE_LEASE_READ_INTERVAL_SECONDS

    async def _ask(self, node: str, answers: dict[str, _Answer]) -> None:
        """A node without a Lease that can be read is never in doubt. After an error of the API server, the
        read is repeated."""
        try:
            lease = await self._cluster.get(LEASES, Key(NAMESPACE, node))
        except Retry:
            return
        except (NotFound, Permanent):
            answers[node] = _Answer(None, self._clock.monotonic())
            return
        renewed_at = parse_stamp(str(spec_of(lease).get("renewTime") or ""))
        answers[node] = _Answer(renewed_at, self._clock.monotonic())


def _renewals(answers: Mapping[str, _Answer]) -> Mapping[str, datetime | None]:
    return {node: answer.renewed_at for node, answer in answers.items()}
