"""The first request to a service without pods: a PaddleService's, over that of Knative's own Service."""

from __future__ import annotations

import asyncio
import os
import statistics
import time

from tests.bench.progress import note
from tests.bench.rows import Row
from tests.e2e.devcluster.test_addons import Client, make_service
from tests.e2e.echo import Served
from tests.e2e.serving.services import serving_cluster, start

from paddlewheel.testkit.wait import eventually

ROUNDS = 7
BARE, OURS = "hello", "sleepy"
FROM_ZERO = {"minScale": 0, "maxScale": 3, "window": "6s"}


async def measure() -> list[Row]:
    """On an embedded cluster of its own with real Knative; a failed request ends the bench."""
    with serving_cluster(f"bench-zero-{os.getpid()}", "knative") as served:
        took = await _rounds(served)
    bare, ours = (statistics.median(took[service]) for service in (BARE, OURS))
    return [
        Row("from zero: floor, Knative's own Service", bare, 30.0, "s"),
        Row("from zero: PaddleService over that", ours - bare, 0.2, "s"),
    ]


async def _rounds(served: Served) -> dict[str, list[float]]:
    """Seconds of the first request, of each in turn."""
    served.apply(make_service("first"))
    served.kubectl("wait", f"ksvc/{BARE}", "--for=condition=Ready", "--timeout=120s")
    await start(served, OURS, "awake", mode="Knative", service=FROM_ZERO)
    took: dict[str, list[float]] = {BARE: [], OURS: []}
    for _ in range(ROUNDS):
        for service, seconds in took.items():
            seconds.append(await _first_request(served, service))
        note(f"from zero: {took[BARE][-1]:.2f} s, PaddleService {took[OURS][-1]:.2f} s")
    return took


async def _first_request(served: Served, service: str) -> float:
    selector = f"serving.knative.dev/service={service}"
    await eventually(lambda: not served.items("pods", "--selector", selector), within=180)
    with Client(served, f"{service}.default.example.com") as client:
        began = time.monotonic()
        status, _ = await asyncio.to_thread(client.get)
        assert status == 200, status
        return time.monotonic() - began
