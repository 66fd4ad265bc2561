"""Brings the newest report of each job into its status, seldom, and then onto the bus.

Any replica may receive a report, so any replica writes: `status.progress` alone, with the resourceVersion
that it has seen, so that replicas never overwrite each other unseen. The newest of several reports counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog

from job_controller.core import names
from job_controller.core.job_status import render_progress
from job_controller.core.parse import has_ended, recorded_epoch
from job_controller.features.progress.report import Report
from job_controller.metrics import ProgressMetrics
from job_controller.timing import PROGRESS_CHECK_INTERVAL_SECONDS, PROGRESS_RETRY_INTERVAL_SECONDS
from job_controller.watch import BY_UID
from paddlewheel.bus.ports import Publisher
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.progress_v1 import JobProgressed
from paddlewheel.contracts.merge_patch import merge_patch
from paddlewheel.contracts.objects import deleted_at, status_of
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Conflict, NotFound, Permanent, Retry
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of, version_of
from paddlewheel.kube.ports import PADDLE_JOBS, Cluster, Object
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.operator.outbox import Count
from paddlewheel.operator.reconciler import object_ref

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Pending:
    """The report of a pod of this epoch, and when it was received."""

    epoch: int
    report: Report
    at: datetime


@dataclass(frozen=True)
class Outlets:
    """The destinations of progress."""

    cluster: Cluster
    bus: Publisher
    breaker: CircuitBreaker
    count_fact: Count


class ProgressWriter:
    """Writes what was reported: at most once in `period` seconds for each job, over all replicas.

    Args:
        jobs: watched; it reports when another replica has written.
    """

    def __init__(
        self, jobs: Informer, out: Outlets, clock: Clock, metrics: ProgressMetrics, period: float
    ) -> None:
        self._jobs = jobs
        self._out = out
        self._clock = clock
        self._metrics = metrics
        self._period = timedelta(seconds=period)
        self._pending: dict[str, _Pending] = {}
        self._quiet_until = 0.0

    def offer(self, uid: str, epoch: int, report: Report) -> None:
        """Keep the report until it is due, instead of the one before; that of a former epoch is late."""
        before = self._pending.get(uid)
        if before is None or before.epoch <= epoch:
            self._pending[uid] = _Pending(epoch, report, self._clock.now())

    async def run(self) -> None:
        """Run until cancelled. A pending report is lost then. The next report makes up for it."""
        while True:
            await self._clock.sleep(min(PROGRESS_CHECK_INTERVAL_SECONDS, self._period.total_seconds()))
            try:
                await self.flush()
            except Exception:
                # A bug here must not end a service that has jobs to run.
                log.exception("progress not written")

    async def flush(self) -> None:
        """Write what is due."""
        if self._clock.monotonic() < self._quiet_until:
            return
        found = {uid: job for uid in self._pending if (job := self._job(uid))}
        self._pending = {uid: self._pending[uid] for uid in found if self._is_news(uid, found[uid])}
        due = [uid for uid in self._pending if self._is_due(found[uid])]
        await gather_bounded(self._write(uid, found[uid]) for uid in due)

    def _job(self, uid: str) -> Object | None:
        return next(iter(self._jobs.by_index(BY_UID, uid)), None)

    def _is_news(self, uid: str, job: Object) -> bool:
        """No other replica has written a later report, and the job has not restarted since."""
        written, pending = self._written(job), self._pending[uid]
        if deleted_at(job) or pending.epoch < recorded_epoch(job):
            return False
        return written is None or written <= pending.at

    def _is_due(self, job: Object) -> bool:
        """The last report of a job that has ended waits for nothing."""
        written = self._written(job)
        return has_ended(job) or written is None or self._clock.now() - written >= self._period

    def _written(self, job: Object) -> datetime | None:
        """When the recorded report was received; None for a time far ahead: some clock was wrong."""
        progress = status_of(job).get("progress") or {}
        written = parse_stamp(progress.get("updatedAt"))
        return written if written and written <= self._clock.now() + self._period else None

    async def _write(self, uid: str, job: Object) -> None:
        if self._clock.monotonic() < self._quiet_until:
            return
        pending = self._pending.pop(uid)
        try:
            obj = await self._patch(job, pending)
        except (Conflict, Retry) as error:
            self._wait_for(error)
            self._pending.setdefault(uid, pending)
            return
        except (NotFound, Permanent) as error:
            self._metrics.wrote("failed")
            log.warning("progress not written", key=str(key_of(job)), error=str(error))
            return
        self._metrics.wrote("written")
        await self._announce(obj, pending)

    async def _patch(self, job: Object, pending: _Pending) -> Object:
        before = status_of(job).get("progress") or {}
        progress = render_progress(pending.report.progress(pending.at))
        patch: dict[str, Any] = {
            "metadata": {"resourceVersion": version_of(job)},
            "status": {"progress": merge_patch(before, progress)},
        }
        return await self._out.cluster.patch(PADDLE_JOBS, key_of(job), patch, subresource="status")

    def _wait_for(self, error: Conflict | Retry) -> None:
        """A conflict passes with the next notification; a server that does not answer is left alone."""
        is_conflict = isinstance(error, Conflict)
        self._metrics.wrote("conflict" if is_conflict else "failed")
        if not is_conflict:
            self._quiet_until = self._clock.monotonic() + PROGRESS_RETRY_INTERVAL_SECONDS

    async def _announce(self, obj: Object, pending: _Pending) -> None:
        """Once: the next fact supersedes one that the bus does not take. None after the job's end."""
        if has_ended(obj):
            return
        try:
            await self._out.breaker.call(self._out.bus.publish(_event(obj, pending)))
        except (Retry, Permanent) as error:
            log.debug("progress not published", key=str(key_of(obj)), error=str(error))
            self._metrics.wrote("unpublished")
            return
        self._out.count_fact(JobProgressed.__name__, "published")


def _event(obj: Object, pending: _Pending) -> Event:
    """The fact about a job as it was written. Raises Permanent."""
    ref = object_ref(obj)
    return make_event(
        pending.report.fact(ref, pending.epoch),
        id=f"{ref.uid}/{JobProgressed.__name__}/{ref.resource_version}",
        source=names.SERVICE,
        namespace=ref.namespace,
        uid=ref.uid,
        time=pending.at,
    )
