"""What serving-controller costs: over the bare objects, and with many services at rest."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tests.bench.rows import Row
from tests.bench.stand import Stand, stand

from paddlewheel.contracts.conditions import is_true
from paddlewheel.contracts.crds import parse_paddle_service_status
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import DEPLOYMENTS, ENDPOINT_SLICES, PADDLE_SERVICES, SERVICES, Object

SERVING_CONTROLLER = "serving-controller"
MANY = 500
AT_ONCE = 20
ROUNDS = 21
CHANGES = 200
CHANGES_PER_SECOND = 10.0
QUIET = 5.0
"""Seconds without a pass after which nothing is due any more."""
FAKE_NODES = 10
NAMESPACE = "default"
IMAGE = "example/echo"
RESOURCES = {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}}


async def measure() -> list[Row]:
    """On a real API server with Kubernetes' own controllers; the pods are played by kwok."""
    async with stand(FAKE_NODES) as made:
        await made.start(SERVING_CONTROLLER)
        ours, bare = await _rounds(made)
        await _make_many(made)
        late, floor = await _change_some(made)
        memory = made.memory(SERVING_CONTROLLER)
        writes = await _writes_of_a_restart(made)
    extra = statistics.median(ours) - statistics.median(bare)
    return [
        Row("services.floor_deployment_and_service_ready", statistics.median(bare), 30.0, "s"),
        Row("services.ready_over_deployment_and_service", extra, 0.2, "s"),
        Row("services.floor_patch_to_watch_p99", _p99(floor), 10.0, "s"),
        Row(f"services.change_to_status_p99_of_{MANY}", _p99(late), 0.5, "s"),
        # The next change is made when the one before is through, so a stall of any length is a single value.
        Row(f"services.change_to_status_longest_of_{MANY}", max(late), 1.0, "s"),
        Row(f"services.writes_of_a_restart_with_{MANY}", writes, 0, ""),
        Row(f"services.memory_with_{MANY}", memory, 200.0, "MB"),
    ]


# Over the bare objects


async def _rounds(made: Stand) -> tuple[list[float], list[float]]:
    """Seconds from apply to ready: of PaddleServices, and of the Deployments and Services under them."""
    ours, bare = [], []
    for number in range(ROUNDS):
        bare.append(await _bare(made, f"bare-{number}"))
        ours.append(await _service(made, f"ours-{number}"))
    return ours, bare


async def _service(made: Stand, name: str) -> float:
    began = time.monotonic()
    await made.cluster.create(PADDLE_SERVICES, _manifest(name))
    await _until(lambda: _is_ready(made, name))
    seconds = time.monotonic() - began
    await made.cluster.delete(PADDLE_SERVICES, Key(NAMESPACE, name))
    return seconds


async def _is_ready(made: Stand, name: str) -> bool:
    return _ready(await made.cluster.get(PADDLE_SERVICES, Key(NAMESPACE, name)))


def _ready(obj: Object) -> bool:
    return is_true(parse_paddle_service_status(obj).conditions, "Ready")


async def _bare(made: Stand, name: str) -> float:
    labels = {"app": name}
    container = {"name": "main", "image": f"{IMAGE}:1", "resources": RESOURCES}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    metadata = {"name": name, "namespace": NAMESPACE}
    began = time.monotonic()
    await made.cluster.create(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    ports = [{"port": 80, "targetPort": 8080}]
    await made.cluster.create(SERVICES, {"metadata": metadata, "spec": {"selector": labels, "ports": ports}})
    await _until(lambda: _has_endpoints(made, name))
    seconds = time.monotonic() - began
    for resource in (DEPLOYMENTS, SERVICES):
        await made.cluster.delete(resource, Key(NAMESPACE, name))
    return seconds


async def _has_endpoints(made: Stand, name: str) -> bool:
    found = await made.cluster.list(
        ENDPOINT_SLICES, NAMESPACE, label_selector=f"kubernetes.io/service-name={name}"
    )
    endpoints = [endpoint for item in found for endpoint in item.get("endpoints") or ()]
    return any((endpoint.get("conditions") or {}).get("ready") for endpoint in endpoints)


# Many


async def _make_many(made: Stand) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def make(number: int) -> None:
        async with gate:
            await made.cluster.create(PADDLE_SERVICES, _manifest(_name(number)))

    await asyncio.gather(*(make(number) for number in range(MANY)))

    async def all_ready() -> bool:
        return all(map(_ready, await made.cluster.list(PADDLE_SERVICES, NAMESPACE)))

    await _until(all_ready, within=900, every=2.0)


async def _change_some(made: Stand) -> tuple[list[float], list[float]]:
    """Seconds until a watch shows the status of a changed spec, and until it shows the change itself."""
    seen: dict[str, asyncio.Event] = {}
    floor: dict[str, float] = {}
    status: dict[str, float] = {}

    def take(obj: Object) -> None:
        name, generation = obj["metadata"]["name"], obj["metadata"]["generation"]
        if name not in seen or not obj["metadata"].get("annotations", {}).get("bench"):
            return
        floor.setdefault(name, time.monotonic())
        if (obj.get("status") or {}).get("observedGeneration") == generation:
            status.setdefault(name, time.monotonic())
            seen[name].set()

    synced = asyncio.Event()
    watching = asyncio.create_task(_watch(made, take, synced.set))
    late, floors = [], []
    try:
        async with asyncio.timeout(60):
            await synced.wait()
        for number in range(CHANGES):
            name, began = _name(number), time.monotonic()
            seen[name] = asyncio.Event()
            patch = {"metadata": {"annotations": {"bench": "1"}}, "spec": {"revisionHistoryLimit": 3}}
            await made.cluster.patch(PADDLE_SERVICES, Key(NAMESPACE, name), patch)
            async with asyncio.timeout(60):
                await seen[name].wait()
            floors.append(floor[name] - began)
            late.append(status[name] - began)
            await asyncio.sleep(max(0.0, 1 / CHANGES_PER_SECOND - (time.monotonic() - began)))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return late, floors


async def _watch(made: Stand, take: Callable[[Object], None], on_synced: Callable[[], None]) -> None:
    async for change in made.cluster.watch(PADDLE_SERVICES, NAMESPACE, on_synced=on_synced):
        take(change.obj)


async def _writes_of_a_restart(made: Stand) -> int:
    """Everything is looked at again, and nothing has changed."""
    # Confirmations of the last facts may still have to be recorded.
    await _until(lambda: _is_through(made), within=300)
    await made.services[SERVING_CONTROLLER].kill()
    await made.start(SERVING_CONTROLLER)
    await _until(lambda: _is_through(made), within=300)
    return await made.writes(SERVING_CONTROLLER)


async def _is_through(made: Stand) -> bool:
    """Every service has had its pass, and for a while no other has followed from one."""
    before = await made.passes(SERVING_CONTROLLER)
    await asyncio.sleep(QUIET)
    return MANY <= before == await made.passes(SERVING_CONTROLLER)


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def _name(number: int) -> str:
    return f"many-{number}"


def _manifest(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "default": {"containerImage": IMAGE, "tag": "1", "port": 8080},
            "resources": RESOURCES,
            "service": {"minScale": 1, "maxScale": 1, "metric": "cpu"},
        },
    }


async def _until(done: Callable[[], Awaitable[bool]], within: float = 60, every: float = 0.01) -> None:
    async with asyncio.timeout(within):
        while not await done():
            await asyncio.sleep(every)
