"""A service under test on real servers: a namespace of a real API server, a NATS server, the service itself.

The service runs within the test, or as processes that the test kills and starts again. Its clock runs faster
in both cases.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self
from unittest.mock import patch

import pytest

from paddlewheel.bus.ports import Bus, Reading
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.errors import NotFound
from paddlewheel.core.settings import load_settings
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import EVENTS, Object, Objects, Resource
from paddlewheel.operator.serve import serve
from paddlewheel.testkit.fast_clock import SPEED, FastClock
from paddlewheel.testkit.fast_controller import parts
from paddlewheel.testkit.harness import KubernetesEvent, name_of
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.services import Service
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

if TYPE_CHECKING:
    from paddlewheel.kube.api import ApiCluster

WITHIN = 90.0
"""Seconds until a wait fails."""
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ServiceSpec:
    """A service to test.

    Args:
        module: name of its module, e.g. `job_controller`. In capitals, it is the prefix of the settings.
        resource: the kind that methods of the harness use by default.
        facts: filter for the subjects of its facts.
        env: settings of each replica, without their prefix.
    """

    module: str
    resource: Resource
    facts: str
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Backends:
    """The servers that a service under test connects to."""

    kubeconfig: str
    cluster: ApiCluster
    namespace: str
    nats: NatsServer
    directory: Path
    """The folder of logs."""
    identities: Mapping[str, str] = field(default_factory=dict)
    """Kubeconfigs of services that have an account in the chart."""


@pytest.fixture
async def backends(
    test_run: TestRun,
    api_server: str,
    cluster: ApiCluster,
    namespace: str,
    nats_server: NatsServer,
    tmp_path: Path,
) -> Backends:
    """A namespace and a NATS server of this test alone."""
    # Takes a moment to import, which unit tests should not pay.
    from paddlewheel.testkit.identities import chart_identities

    identities = await chart_identities(test_run, api_server)
    return Backends(api_server, cluster, namespace, nats_server, tmp_path, identities)


class Replica:
    """A service within the test: `run(stop)` as a task."""

    def __init__(self, run: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> None:
        self._run = run
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return at once, also when it was stopped before."""
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run(self._stop))

    async def stop(self) -> None:
        """Stop it in order. Raises its error when it has ended before."""
        task, self._task = self._task, None
        self._stop.set()
        if task is not None:
            await task


class ServiceHarness:
    """A service under test, with methods for tests.

    Methods wait with a time-out, and name it when they fail.
    """

    def __init__(self, spec: ServiceSpec, backends: Backends) -> None:
        self.spec = spec
        self.backends = backends
        self.cluster, self.namespace, self.nats = backends.cluster, backends.namespace, backends.nats
        self.events: list[Event] = []
        self._processes: dict[str, Service] = {}
        self._replicas: dict[str, Replica] = {}
        self._uids: dict[Key, set[str]] = {}
        self._bus: Bus | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """Facts are collected while the block runs; the service's processes end with it."""
        # The client library takes a moment to import, which unit tests should not pay.
        from paddlewheel.bus import connect

        self._bus = await connect(self.nats.url, name="test")
        listening = asyncio.create_task(self._listen(self._bus))
        try:
            yield self
        finally:
            await self.stop()
            await end(listening)
            await self._bus.close()

    @property
    def bus(self) -> Bus:
        """The test's own client."""
        assert self._bus is not None, "the harness is not opened"
        return self._bus

    async def _listen(self, bus: Bus) -> None:
        async for delivery in bus.read(Reading((self.spec.facts,), BEGINNING)):
            self.events.append(delivery.event)

    # The service

    def env(self, replica: str = "replica-0", **settings: str) -> dict[str, str]:
        """The environment of one replica; `settings` without their prefix."""
        identities = self.backends.identities
        own = {
            "KUBECONFIG": identities.get(self.spec.module.replace("_", "-"), self.backends.kubeconfig),
            "NATS_URL": self.nats.url,
            "NAMESPACE": self.namespace,
            "POD_NAMESPACE": self.namespace,
            "POD_NAME": replica,
            "HTTP_PORT": "0",
            # The resync is as rare as in production, so that no wait of a test ends because of it.
            "RESYNC": f"{300 * SPEED}",
        }
        prefix = self.spec.module.upper()
        named = {f"{prefix}_{name}": value for name, value in {**own, **self.spec.env, **settings}.items()}
        return {**os.environ, **named}

    async def start(self, replica: str = "replica-0", **settings: str) -> Replica:
        """Start a replica within the test; it comes up in its own time."""
        app, config, names = parts(self.spec.module)
        with patch.dict(os.environ, self.env(replica, **settings)):
            loaded = load_settings(config.Settings)
        run = partial(serve, names.SERVICE, loaded, app.build, clock=FastClock())
        started = self._replicas[replica] = Replica(lambda stop: run(stop=stop))
        await started.start()
        return started

    async def start_process(self, replica: str = "replica-0", **settings: str) -> Service:
        """Start a replica as a process, for a test that kills it, or reads its log, metrics or traces."""
        log = self.backends.directory / f"{replica}.log"
        env = self.env(replica, **settings)
        service = Service("paddlewheel.testkit.fast_controller", env, log, self.spec.module)
        self._processes[replica] = service
        await service.start()
        return service

    async def stop(self) -> None:
        """Stop all replicas in order; logs of processes appear in the report of a test that fails."""
        replicas, self._replicas = self._replicas, {}
        processes, self._processes = self._processes, {}
        stops = (*(r.stop() for r in replicas.values()), *(p.stop() for p in processes.values()))
        await asyncio.gather(*stops)
        for name, service in processes.items():
            sys.stdout.write(f"--- log of {name}\n{service.log.read_text(errors='replace')}")

    # Objects

    def key(self, name: str) -> Key:
        """The key of an object in the test's namespace."""
        return Key(self.namespace, name)

    async def create(self, obj: Object, resource: Resource | None = None) -> Key:
        """Create an object in the test's namespace."""
        obj["metadata"]["namespace"] = self.namespace
        created = await self.cluster.create(resource or self.spec.resource, obj)
        key = self.key(created["metadata"]["name"])
        self._uids.setdefault(key, set()).add(created["metadata"]["uid"])
        return key

    async def get(self, key: Key, resource: Resource | None = None) -> Object:
        """Raises NotFound."""
        return await self.cluster.get(resource or self.spec.resource, key)

    async def exists(self, key: Key, resource: Resource | None = None) -> bool:
        try:
            await self.get(key, resource)
        except NotFound:
            return False
        return True

    async def objects(self, resource: Resource) -> Objects:
        """The objects of the test's namespace."""
        return await self.cluster.list(resource, self.namespace)

    async def set_status(self, key: Key, status: Object, resource: Resource | None = None) -> Object:
        """Play another controller: merge into the status of an object."""
        patch = {"status": status}
        return await self.cluster.patch(resource or self.spec.resource, key, patch, subresource="status")

    async def status(self, key: Key, resource: Resource | None = None) -> Object:
        """Empty when it has none."""
        return (await self.get(key, resource)).get("status") or {}

    async def wait_status(
        self,
        key: Key,
        wanted: Mapping[str, object],
        *,
        resource: Resource | None = None,
        within: float = WITHIN,
    ) -> Object:
        """Wait until the status has these fields. Returns the status."""

        async def reached() -> Object | None:
            status = await self.status(key, resource)
            return status if {name: status.get(name) for name in wanted} == dict(wanted) else None

        return await eventually(reached, within=within, what=f"{key} has {wanted}")

    async def wait_phase(
        self, key: Key, phase: str, *, resource: Resource | None = None, within: float = WITHIN
    ) -> Object:
        """Gives the status."""
        return await self.wait_status(key, {"phase": phase}, resource=resource, within=within)

    async def wait_condition(
        self, key: Key, type_: str, reason: str, *, resource: Resource | None = None, within: float = WITHIN
    ) -> Object:
        """Wait until the condition has this reason. Returns the condition."""

        async def reached() -> Object | None:
            conditions = (await self.status(key, resource)).get("conditions") or ()
            return next((c for c in conditions if (c["type"], c["reason"]) == (type_, reason)), None)

        return await eventually(reached, within=within, what=f"{key} is {type_} {reason}")

    async def wait_gone(self, key: Key, resource: Resource | None = None, *, within: float = WITHIN) -> None:
        async def gone() -> bool:
            return not await self.exists(key, resource)

        await eventually(gone, within=within, what=f"{key} is gone")

    async def take_away(self, owner: Key, resource: Resource, child: Key) -> None:
        """Remove a child's labels and owner until its owner has the condition OwnedByAnother, and restore
        them.

        The service watches only objects with its labels, so it tries to create the child again, and finds the
        existing object.
        """
        before = (await self.get(child, resource))["metadata"]
        parts = ("labels", "annotations", "ownerReferences")

        async def is_told() -> bool:
            conditions = (await self.status(owner)).get("conditions") or ()
            told = [c["message"] for c in conditions if c["reason"] == Reason.OWNED_BY_ANOTHER]
            return any(resource.kind in message for message in told)

        await self.cluster.patch(resource, child, {"metadata": dict.fromkeys(parts)})
        await eventually(
            is_told, within=WITHIN, what=f"{owner} reports {resource.kind} {child} as owned by another"
        )
        assert (await self.get(child, resource))["metadata"]["uid"] == before["uid"]
        await self.cluster.patch(resource, child, {"metadata": {name: before.get(name) for name in parts}})

    async def wait_objects(self, resource: Resource, count: int, *, within: float = WITHIN) -> Objects:
        """Wait until the namespace has exactly this number of objects."""

        async def there() -> tuple[Objects] | None:
            objects = await self.objects(resource)
            return (objects,) if len(objects) == count else None

        return (await eventually(there, within=within, what=f"{count} {resource.plural}"))[0]

    # What came out

    def facts(self, key: Key | None = None) -> list[str]:
        """Names of the facts in the stream's order: all, or those about one object that `create` made."""
        uids = None if key is None else self._uids[key]
        return [name_of(e) for e in self.events if uids is None or e.subject.rpartition(".")[2] in uids]

    async def wait_facts(self, key: Key | None, *expected: str, within: float = WITHIN) -> None:
        """Wait until these facts, and no others, are published."""

        def there() -> bool:
            found = self.facts(key)
            assert found == list(expected), found
            return True

        await eventually(there, within=within, what=f"facts {expected}")

    async def kubernetes_events(self) -> list[KubernetesEvent]:
        """The Kubernetes Events of the namespace, sorted."""
        listed = await self.objects(EVENTS)
        return sorted(KubernetesEvent(e["type"], e["reason"], e.get("message", "")) for e in listed)


@asynccontextmanager
async def running_app(run: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """A service's app within the block."""
    replica = Replica(run)
    await replica.start()
    try:
        yield
    finally:
        await replica.stop()
