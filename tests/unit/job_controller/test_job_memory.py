"""A replica forgets objects that are gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any

import pytest
from tests.unit.job_controller.conftest import JobHarness, OpenHarness
from tests.unit.job_controller.test_job_datasets import ready_fact

from job_controller import app
from job_controller.reconciler import PaddleJobKind
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import LEASES, PADDLE_JOBS, PODS, SAMPLE_SETS, Resource
from paddlewheel.testkit.memory_cluster import Verb
from paddlewheel.testkit.paddlejobs import (
    ended_status,
    make_paddle_job,
    make_role,
    make_sample_set,
    set_sample_set_phase,
)

JOBS = 72
"""The jobs of each of two rounds. A job has a data set, a ConfigMap and two pods with Leases of their nodes,
which makes 1,008 objects."""
OWN = (__name__, "job_controller", "paddlewheel.operator", "paddlewheel.core", "paddlewheel.kube.informer")


def sizes(root: object) -> dict[str, int]:
    """The sizes of all collections of an object and of the objects that it has, by path."""
    found, known = dict[str, int](), set[int]()

    def look(path: str, value: Any) -> None:
        if id(value) in known or isinstance(value, str | bytes | type):
            return
        known.add(id(value))
        if isinstance(value, Sized) and isinstance(value, Mapping | set | list):
            found[path] = len(value)
        elif isinstance(value, tuple):
            for index, part in enumerate(value):
                look(f"{path}[{index}]", part)
        elif type(value).__module__.startswith(OWN):
            for name, part in _parts(value):
                look(f"{path}.{name}", part)

    look("", root)
    return found


def _parts(value: object) -> Iterator[tuple[str, Any]]:
    slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    yield from getattr(value, "__dict__", {}).items()
    yield from ((name, getattr(value, name)) for name in slots if hasattr(value, name))


def forbid_sets(verb: Verb, resource: Resource, key: Key) -> None:
    """Every second data set may not be read."""
    if (verb, resource) == ("get", SAMPLE_SETS) and int(key.name.rpartition("-")[2]) % 2:
        raise Permanent("Forbidden", "samplesets are forbidden")


async def live(harness: JobHarness, number: int) -> None:
    """Jobs whose first worker fails, so that the verdict waits for the node of the second one."""
    for index in range(JOBS):
        name = f"job-{number}-{index}"
        ref = Key("default", name)
        await make_sample_set(harness.cluster, ref, partitions=2)
        await set_sample_set_phase(harness.cluster, ref, "Ready")
        await harness.bus.publish(ready_fact(name))
        data = {"name": name, "mountPath": "/data"}
        await harness.cluster.create(
            PADDLE_JOBS, make_paddle_job(name, worker=make_role(2), sampleSetRef=data, backoffLimit=1)
        )
    await harness.drain_queue()
    await harness.advance(1)
    for name in await harness.pod_names():
        await harness.patch(Key("default", name), {"spec": {"nodeName": f"node-of-{name}"}}, PODS)
        lease = {"name": f"node-of-{name}", "namespace": "kube-node-lease"}
        await harness.cluster.create(LEASES, {"metadata": lease, "spec": {"renewTime": "now"}})
    await harness.run_pods()
    await harness.drain_queue()
    for name in await harness.pod_names():
        if name.endswith("-worker-0"):
            await harness.set_status(Key("default", name), ended_status(exit_code=1), PODS)
    await harness.drain_queue()
    await harness.advance(3)


async def die(harness: JobHarness, number: int) -> None:
    for index in range(JOBS):
        await harness.cluster.delete(PADDLE_JOBS, Key("default", f"job-{number}-{index}"))
        await harness.cluster.delete(SAMPLE_SETS, Key("default", f"job-{number}-{index}"))
    await harness.drain_queue()
    await harness.advance(120)


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> list[PaddleJobKind]:
    """The services that were started."""
    started: list[PaddleJobKind] = []

    class Kind(PaddleJobKind):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            started.append(self)

    monkeypatch.setattr(app, "PaddleJobKind", Kind)
    return started


async def test_a_data_set_that_no_job_uses_is_forgotten(
    open_harness: OpenHarness, kinds: list[PaddleJobKind]
) -> None:
    async with open_harness() as harness:
        for name in ("one", "two"):
            await make_sample_set(harness.cluster, Key("default", name))
            await set_sample_set_phase(harness.cluster, Key("default", name), "Ready")
        data = {"name": "one", "mountPath": "/data"}
        key = await harness.to_running(make_paddle_job(worker=make_role(1), sampleSetRef=data))
        await harness.patch(key, {"spec": {"sampleSetRef": {"name": "two"}}})
        await harness.settle(key)
        found = {path: size for path, size in sizes(kinds[0]).items() if path.endswith("._well_sets")}
        assert list(found.values()) == [1], found


@pytest.mark.slow
async def test_a_replica_forgets_a_thousand_objects(
    open_harness: OpenHarness, kinds: list[PaddleJobKind]
) -> None:
    async with open_harness() as harness:
        with harness.intercepted(forbid_sets):
            before = sizes(kinds[0])
            for number in range(2):
                await live(harness, number)
                during = sizes(kinds[0])
                await die(harness, number)
        after = sizes(kinds[0])
        assert sum(size > JOBS / 3 for size in during.values()) >= 8, "the jobs have used the memories"
        # One scheduler is known by its name.
        assert {path: size for path, size in after.items() if size > before.get(path, 0) + 1} == {}
