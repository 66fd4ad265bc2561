"""Many data sets at once: time until each has its claim bound, memory of dataset-controller."""

from __future__ import annotations

import asyncio
import statistics
import time

from tests.bench.rows import Row
from tests.bench.stand import Stand, stand

from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import SAMPLE_SETS, SECRETS
from paddlewheel.testkit.samplesets import make_sample_set, make_secret

DATASET_CONTROLLER = "dataset-controller"
MANY = 1_000
PER_SECOND = 8
"""Created by others meanwhile. Each set makes some 17 requests until it is bound and 35 in all, with those of
Kubernetes' own controllers, and takes 0.24 s of CPU: eight a second are what two cores do."""
FAKE_NODES = 20
NAMESPACE = "default"
UNBOUND = (None, "", "None", "NotBound")
"""Phases of a set whose claim is not bound yet."""


async def measure() -> list[Row]:
    """On a real API server with Kubernetes' own controllers, which bind the claims; kwok plays the nodes."""
    async with stand(FAKE_NODES) as made:
        await made.start(DATASET_CONTROLLER, RUNTIME_IMAGE="example/cache-runtime:1")
        await made.cluster.create(SECRETS, make_secret("keys"))
        late = await _bind_many(made)
        memory = made.memory(DATASET_CONTROLLER)
    return [
        Row(f"data.bound_p95_of_{MANY}_sets", statistics.quantiles(late, n=100)[94], 5.0, "s"),
        Row(f"data.memory_of_controller_with_{MANY}_sets", memory, 200.0, "MB"),
    ]


async def _bind_many(made: Stand) -> list[float]:
    """Seconds from the creation of each set until a watch shows that its claim is bound."""
    created: dict[str, float] = {}
    bound: dict[str, float] = {}
    all_bound = asyncio.Event()

    async def watch() -> None:
        async for change in made.cluster.watch(SAMPLE_SETS, NAMESPACE):
            name = change.obj["metadata"]["name"]
            if (change.obj.get("status") or {}).get("phase") not in UNBOUND:
                bound.setdefault(name, time.monotonic())
            if len(bound) == MANY:
                all_bound.set()

    watching = asyncio.create_task(watch())
    try:
        began = time.monotonic()
        for number in range(MANY):
            await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
            name = f"set-{number}"
            created[name] = time.monotonic()
            await made.cluster.create(SAMPLE_SETS, make_sample_set(name, secretRef={"name": "keys"}))
        async with asyncio.timeout(600):
            await all_bound.wait()
    finally:
        await end(watching)
    return [bound[name] - created[name] for name in created]
