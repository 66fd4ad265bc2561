"""Reads the last lines of the pods of a finished job before the pods are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from job_controller.core import names
from job_controller.core.model import Observed
from job_controller.core.pods import Pod
from job_controller.features.kept_logs.rules import BYTES, LINES, not_read, pods_to_read
from job_controller.reading import Reader
from job_controller.timing import LOGS_READ_TIMEOUT_SECONDS
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube.ports import Cluster
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.operator.domain.plan import Applied

LOGS_AT_ONCE = 8
"""Logs of all jobs that are read at the same time."""


class LastLines(Reader):
    """Remembers the jobs whose logs are kept.

    After a restart, the logs of pods that are still there are read again. The ConfigMap is not changed then.
    """

    reads_ended_jobs = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._slots = asyncio.Semaphore(LOGS_AT_ONCE)
        self._done: set[str] = set()

    async def read(self, seen: Observed) -> Observed:
        if seen.job.uid in self._done or not (pods := pods_to_read(seen)):
            return seen
        return replace(seen, logs=await self._logs(pods, seen.job.key.namespace))

    def applied(self, seen: Observed, applied: Applied) -> None:
        """Logs that were kept, or that can never be kept, are not read again."""
        is_due = any(t.kind == names.KEPT_LOGS and not t.is_refusal for t in applied.troubles)
        if seen.logs and not is_due:
            self._done.add(seen.job.uid)

    def forget(self, key: Key, job_uid: str) -> None:
        self._done.discard(job_uid)

    async def _logs(self, pods: Sequence[Pod], namespace: str) -> dict[str, str]:
        """Logs by pod. When a log cannot be read in time, as on a lost node, the reason is kept instead."""
        logs = {pod.name: not_read(f"no answer within {LOGS_READ_TIMEOUT_SECONDS:g} s") for pod in pods}

        async def read(pod: Pod) -> None:
            async with self._slots:
                logs[pod.name] = await self._read_log(Key(namespace, pod.name), pod.speaker)

        with suppress(TimeoutError):
            async with asyncio.timeout(LOGS_READ_TIMEOUT_SECONDS):
                await gather_bounded(map(read, pods))
        return logs

    async def _read_log(self, pod: Key, container: str) -> str:
        try:
            # One byte more than is kept, to know that there was more.
            return await self._cluster.read_log(pod, container=container, lines=LINES, limit_bytes=BYTES + 1)
        except (Retry, Permanent) as error:
            return not_read(error.message or error.reason)
        except NotFound:
            return not_read("the pod is gone")
