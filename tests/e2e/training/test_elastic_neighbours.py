"""Elastic jobs that share nodes, with real kubelets and a real scheduler."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.e2e.training.live_job import Status
from tests.e2e.training.peer_job import WAIT_TIMEOUT_SECONDS, PeerJob, nodes_of, offer, restarts_of

from paddlewheel.cli.target import Target
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * WAIT_TIMEOUT_SECONDS)]

WORKERS = 4
MOST_RESTARTS = 5
"""Two jobs shrink and one grows. On a slow machine a growth is lost, which is a shrink and another growth."""
QUIET_INTERVAL_SECONDS = 150
"""Longer than each wait before a growth. Jobs that took each other's room restarted every 24 s."""


async def test_two_elastic_jobs_with_five_slots_do_not_restart_each_other(
    paddlewheel_cluster: Target, tmp_path: Path
) -> None:
    """Both have two of four workers. With each further slot one of them grows, which needs a restart, and the
    other one does not take its room meanwhile."""
    first, second = await nodes_of(paddlewheel_cluster)
    left, right = (PeerJob(paddlewheel_cluster, name, tmp_path, slots="shared") for name in ("left", "right"))
    await offer(paddlewheel_cluster, first, shared=2)
    await left.begin(WORKERS, requests=1)
    await left.trains(2)
    await right.begin(WORKERS, requests=1)
    await right.waits_with("Unschedulable")
    await offer(paddlewheel_cluster, second, shared=2)
    await right.trains(2)
    await offer(paddlewheel_cluster, second, shared=3)
    five = await settled((left, right), workers=5)
    await offer(paddlewheel_cluster, second, shared=4)
    six = await settled((left, right), workers=6)
    assert restarts(five) <= MOST_RESTARTS
    assert restarts(six) <= restarts(five) + MOST_RESTARTS
    for job in (left, right):
        job.stop()
        status = await job.ends()
        assert set(restarts_of(status)) <= {"Resized"}
        await job.remove()


async def settled(jobs: Sequence[PeerJob], workers: int) -> list[Status]:
    """Wait until the jobs train with so many workers together, and none has restarted for a while."""

    async def look() -> list[Status] | None:
        found = [await job.status() for job in jobs]
        is_full = sum(map(workers_of, found)) == workers
        return found if is_full and all(map(is_quiet, found)) else None

    began = time.monotonic()
    what = f"{workers} workers train and go on"
    statuses: list[Status] = await eventually(look, within=1.5 * WAIT_TIMEOUT_SECONDS, every=2.0, what=what)
    shown = {job.name: restarts_of(status) for job, status in zip(jobs, statuses, strict=True)}
    sizes = [workers_of(status) for status in statuses]
    print(f"{sizes} workers, quiet after {time.monotonic() - began:.0f} s: {json.dumps(shown)}")
    return statuses


def workers_of(status: Status) -> int:
    return int((status.get("world") or {}).get("workers", WORKERS))


def is_quiet(status: Status) -> bool:
    since = parse_stamp(status.get("lastRestart", {}).get("time") or status.get("startTime"))
    runs = status.get("phase") == "Running" and since is not None
    return runs and since is not None and time.time() - since.timestamp() >= QUIET_INTERVAL_SECONDS


def restarts(statuses: Sequence[Status]) -> int:
    return sum(sum(restarts_of(status).values()) for status in statuses)
