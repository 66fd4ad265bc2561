"""User stories on a real cluster: from PNG files to a trained model, undisturbed and disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from paddlewheel.bus.ports import Delivery
from paddlewheel.cli.demo.digits import JOB, NAMESPACE, SAMPLE_SET
from paddlewheel.cli.demo.model import DemoOptions, Outcome
from paddlewheel.cli.demo.run import run_workload
from paddlewheel.cli.demo.view import SilentView
from paddlewheel.cli.events import SYSTEM_NAMESPACE
from paddlewheel.cli.target import Target
from paddlewheel.contracts.generated.cache_v1 import RunProgressed
from paddlewheel.contracts.generated.jobs_v1 import JobStarting
from paddlewheel.testkit.faults import kill_program

pytestmark = pytest.mark.timeout(900)


class Fault:
    """Breaks something once, at the first fact that `when` picks."""

    def __init__(self, when: Callable[[Delivery], bool], break_it: Callable[[], Awaitable[object]]) -> None:
        self._when = when
        self._break_it = break_it
        self._task: asyncio.Future[object] | None = None

    def hear(self, delivery: Delivery) -> None:
        if self._task is None and self._when(delivery):
            self._task = asyncio.ensure_future(self._break_it())

    async def happened(self) -> None:
        assert self._task is not None, "the fault was never injected: the run was over too soon"
        await self._task


def in_the_middle_of_warmup(delivery: Delivery) -> bool:
    data = delivery.event.data
    return (
        isinstance(data, RunProgressed)
        and data.operation == "warmup"
        and 0 < data.files_done < data.files_total
    )


async def small_run(where: Target, folder: Path, fault: Fault | None = None) -> Outcome:
    options = DemoOptions(digits=300, epochs=1, model_out=folder)
    hear = fault.hear if fault else None
    outcome = await run_workload(options, SilentView(), where, Outcome(), on_fact=hear)
    if fault:
        await fault.happened()
    return outcome


async def test_digits_become_a_model(paddlewheel_cluster: Target, tmp_path: Path) -> None:
    outcome = await small_run(paddlewheel_cluster, tmp_path)

    assert outcome.shortfalls == []
    assert outcome.results["epochs"] == 1
    assert outcome.facts_received == outcome.facts_published
    assert any(tmp_path.rglob("*")), "the model lies on this machine"
    pods = await _items(paddlewheel_cluster, "pods")
    nodes = {p["spec"]["nodeName"] for p in pods if p["metadata"]["name"].startswith(f"{JOB}-worker-")}
    assert len(nodes) <= 2
    events = await _items(paddlewheel_cluster, "events")
    warnings = [
        e
        for e in events
        if e["type"] == "Warning" and e["involvedObject"].get("name", "").startswith(f"{JOB}-worker")
    ]
    assert warnings == [], "a healthy job shows no Warning event"


async def _items(where: Target, kind: str) -> list[dict[str, Any]]:
    return list(
        orjson.loads(await where.tools.run("kubectl", "get", kind, "-n", NAMESPACE, "-o", "json"))["items"]
    )


async def test_nats_killed_in_the_middle_of_the_warmup(paddlewheel_cluster: Target, tmp_path: Path) -> None:
    async def kill() -> None:
        assert paddlewheel_cluster.embedded
        assert kill_program(paddlewheel_cluster.embedded, "nats-server") == 1

    outcome = await small_run(paddlewheel_cluster, tmp_path, Fault(in_the_middle_of_warmup, kill))
    assert outcome.shortfalls == []


async def test_agent_pod_deleted_in_the_middle_of_the_warmup(
    paddlewheel_cluster: Target, tmp_path: Path
) -> None:
    async def delete() -> None:
        await delete_pods(
            paddlewheel_cluster, NAMESPACE, f"statefulset.kubernetes.io/pod-name={SAMPLE_SET}-runtime-1"
        )

    outcome = await small_run(paddlewheel_cluster, tmp_path, Fault(in_the_middle_of_warmup, delete))
    assert outcome.shortfalls == []


async def test_job_controller_killed_while_the_job_starts(
    paddlewheel_cluster: Target, tmp_path: Path
) -> None:
    async def delete() -> None:
        await delete_pods(paddlewheel_cluster, SYSTEM_NAMESPACE, "app.kubernetes.io/name=job-controller")

    fault = Fault(lambda delivery: isinstance(delivery.event.data, JobStarting), delete)
    outcome = await small_run(paddlewheel_cluster, tmp_path, fault)
    assert outcome.shortfalls == []


async def delete_pods(where: Target, namespace: str, selector: str) -> None:
    """At once, without a grace period."""
    now = ("--grace-period=0", "--force", "--wait=false")
    await where.tools.run("kubectl", "delete", "pods", "-n", namespace, "-l", selector, *now)
