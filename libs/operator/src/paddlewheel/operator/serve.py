"""Runs a controller: connections, sharding over replicas, health and draining. The same for every service."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from aiohttp import web

from paddlewheel import bus as bus_library
from paddlewheel import kube
from paddlewheel.bus.access import Access
from paddlewheel.bus.ports import Bus, Handler, Reading, Subscription
from paddlewheel.bus.streams import StreamSpec
from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Controller, Reconcile, Result
from paddlewheel.core import http, logging, telemetry
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.run import run_service
from paddlewheel.core.settings import load_settings
from paddlewheel.core.tasks import end
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.membership import LeaseMembership
from paddlewheel.kube.ports import WatchedCluster
from paddlewheel.operator.circuit_breaker import CircuitBreaker
from paddlewheel.operator.outbox import Count, Outbox, Republished
from paddlewheel.operator.rebuild import Owned, Rebuilder, answer_rebuilds
from paddlewheel.operator.reconciler import Outside
from paddlewheel.operator.settings import OperatorSettings
from paddlewheel.operator.sharding import Shard
from paddlewheel.operator.watch import Watch

MANY_CLIENTS = http.Limits(connections=20_000, of_one_address=300, headers=16)
"""Limits for ports to which every pod of a cluster may connect."""
_OTHER_FILES = 1000
EVENTS_FLUSH_TIMEOUT_SECONDS = 2.0
"""Maximum time for writing the last Kubernetes Events when the service stops."""

Task = Callable[[], Coroutine[None, None, None]]
S = TypeVar("S", bound=OperatorSettings)


def allow_open_files(count: int) -> None:
    """Raise the limit of open files of this process as far as allowed.

    Some container runtimes set it to 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHER_FILES if hard == resource.RLIM_INFINITY else min(count + _OTHER_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Passes(Protocol):
    """A reconciler for one kind."""

    async def reconcile(self, key: Key) -> Result: ...

    async def republish(self, key: Key, everything: bool = False) -> Republished: ...

    def keep(self, owns: Callable[[Key], bool]) -> None: ...


class Control(Protocol):
    """The reconcile loop of one kind, for example `paddlewheel.control.controller.Controller`."""

    def wake(self, key: Key, after: float = 0.0) -> None: ...

    def resync(self) -> None: ...

    def stop(self) -> None: ...

    async def run(self) -> None: ...


class MakeControl(Protocol):
    """Creates the reconcile loop of a kind.

    `name` is a label of metrics. `keys` returns all existing objects.
    """

    def __call__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        clock: Clock,
        keys: Callable[[], Iterable[Key]],
        owns: Callable[[Key], bool],
        is_first: Callable[[Key], bool],
        workers: int,
        resync: float,
    ) -> Control: ...


@dataclass(frozen=True)
class Host:
    """The API server, bus and clock that a service uses. Tests pass fakes."""

    api: WatchedCluster
    bus: Bus
    clock: Clock
    make_control: MakeControl = Controller
    lease_clock: Clock | None = None
    """Clock of the Leases, which replicas in other processes read too; None is `clock`."""


FallsWith = Callable[[Key], Key | None]


def _by_itself(key: Key) -> Key:
    return key


class Operator:
    """One controller process. `app.py` of a service composes it.

    Args:
        name: name of the service in its Leases, facts and commands.
        watch: the informers that must be synced before the first pass.
        component: source of the Kubernetes Events of the service. "" means `name`.
    """

    def __init__(
        self,
        name: str,
        settings: OperatorSettings,
        host: Host,
        *,
        watch: Watch,
        component: str = "",
    ) -> None:
        self.name = name
        self.settings = settings
        self.api, self.bus, self.clock = host.api, host.bus, host.clock
        self._make_control = host.make_control
        self.watch = watch
        me, home = settings.pod_name, settings.pod_namespace
        self.events = EventRecorder(host.api, component or name, me, host.clock)
        self._membership = LeaseMembership(host.api, host.api, home, name, me, host.lease_clock or host.clock)
        self._shard = Shard(me, self._membership.members)
        self._controllers: list[Control] = []
        self._reconcilers: list[tuple[Passes, Callable[[Key], bool]]] = []
        self._owned: list[Owned] = []
        self._rebuilder: Rebuilder | None = None
        self._background: list[Task] = []
        self._consumers: list[Task] = []
        self._routes: list[web.RouteDef] = []
        self._listeners: list[tuple[int, tuple[web.RouteDef, ...], Path | None]] = []

    def outbox(
        self, stream: StreamSpec, count: Count, elsewhere: Mapping[str, StreamSpec] = MappingProxyType({})
    ) -> Outbox:
        """Create the outbox of the service, with its own circuit breaker.

        Call this once. `elsewhere`: see `Outbox`.
        """
        breaker = CircuitBreaker(self.clock)
        outbox = Outbox(self.bus, breaker, self.clock, stream=stream, count=count, elsewhere=elsewhere)
        self._rebuilder = Rebuilder(outbox, self._owned, self.clock)
        return outbox

    def outside(self, kind: str, outbox: Outbox, finalizer: str = "") -> Outside:
        """The environment for the reconciler of a watched kind. `finalizer`: see `Outside`."""
        store = self.watch.of(kind)
        return Outside(
            store.resource, store, self.api, outbox, self.events, self.clock, self.name, finalizer=finalizer
        )

    def control(
        self,
        kind: str,
        reconciler: Passes,
        falls_with: FallsWith = _by_itself,
        is_first: Callable[[Key], bool] = lambda _: False,
        left_behind: Callable[[], Iterable[Key]] = tuple,
    ) -> Control:
        """Reconcile the objects of a watched kind that belong to this replica.

        Args:
            falls_with: returns, for the key of an object, the key of another object. Both objects belong to
                the same replica. None if the object is gone: then every replica forgets it.
            is_first: whether a changed object has priority over other changed objects.
            left_behind: keys of objects that may be gone, but have children that must be removed.
        """
        keys = self.watch.of(kind).keys

        def all_keys() -> Iterable[Key]:
            return {*keys(), *left_behind()}

        def owns(key: Key) -> bool:
            with_key = falls_with(key)
            return with_key is None or self.owns(with_key)

        controller = self._make_control(
            kind.lower(),
            reconciler.reconcile,
            clock=self.clock,
            keys=all_keys,
            owns=owns,
            is_first=is_first,
            workers=self.settings.workers,
            resync=self.settings.resync,
        )
        self._controllers.append(controller)
        self._reconcilers.append((reconciler, owns))
        self._owned.append(Owned(lambda: filter(owns, keys()), reconciler.republish))
        return controller

    def owns(self, key: Key) -> bool:
        """True when the object belongs to this replica."""
        return not self.settings.replicas_share or self._shard.owns(key)

    def background(self, task: Task) -> None:
        """Run the task from the start, until everything else has stopped."""
        self._background.append(task)

    def consume(self, subscription: Subscription, handle: Handler) -> None:
        """Handle each message in one replica, after the caches are filled."""
        wanted = replace(subscription, handle_within=self.settings.handler_deadline)
        self._consumers.append(lambda: self.bus.consume(wanted, handle))

    def read(self, reading: Reading, handle: Handler) -> None:
        """Handle each new message in every replica. Older messages are not read."""
        self._consumers.append(lambda: self._read(reading, handle))

    def route(self, route: web.RouteDef) -> None:
        """Add an HTTP route to those of every service."""
        self._routes.append(route)

    def listen(self, port: int, routes: Iterable[web.RouteDef], tls_dir: Path | None = None) -> None:
        """Serve HTTP routes at a separate port, over TLS if `tls_dir` has tls.crt and tls.key.

        Many clients of this port cannot delay the probes, and cannot reach probes or metrics.
        """
        self._listeners.append((port, tuple(routes), tls_dir))

    @property
    def routes(self) -> tuple[web.RouteDef, ...]:
        """All HTTP routes of the service at all ports, except the routes that every service has."""
        return (*self._routes, *(route for _, routes, _ in self._listeners for route in routes))

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`. Running passes are finished first."""
        checks = {"caches": self._is_synced, "bus": self._is_on_bus, "handlers": self._are_in_time}
        if self._listeners:
            allow_open_files(MANY_CLIENTS.connections)
        async with AsyncExitStack() as open_ports:
            await open_ports.enter_async_context(http.serve(self.settings.http_port, checks, self._routes))
            for port, routes, tls_dir in self._listeners:
                listening = http.serve(port, None, routes, limits=MANY_CLIENTS, tls_dir=tls_dir)
                await open_ports.enter_async_context(listening)
            await self.operate(stop)

    async def operate(self, stop: asyncio.Event) -> None:
        """Do the same as `run`, without the HTTP server."""
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(task()) for task in self.background_tasks()]
            consumers = [group.create_task(task()) for task in self.consumer_tasks()]
            controllers = [group.create_task(self._once_synced(c.run)) for c in self._controllers]
            await stop.wait()
            # Stop the intake of messages, then finish the running passes, then end the background tasks.
            await end(*consumers)
            await self._drain(controllers)
            await end(*background)

    async def _is_on_bus(self) -> bool | str:
        return self.bus.trouble or await self.bus.healthy()

    def consumer_tasks(self) -> list[Task]:
        """Tasks that take messages from the bus. They start after the caches are filled."""
        return [partial(self._once_synced, task) for task in self._consumers]

    def background_tasks(self) -> list[Task]:
        """Tasks that run beside the controllers from the start."""
        tasks: list[Task] = [*self._background, self.events.run, lambda: self._once_synced(self._rebuild)]
        if self.settings.replicas_share:
            tasks.append(lambda: self._membership.run(self._share_changed))
        return tasks

    async def _once_synced(self, task: Task) -> None:
        await self.watch.wait_synced()
        await task()

    async def _read(self, reading: Reading, handle: Handler) -> None:
        async for delivery in self.bus.read(reading):
            await handle(delivery)

    async def _rebuild(self) -> None:
        """Publish lost facts again, automatically and on the command `rebuild`."""
        if self._rebuilder is None:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rebuilder.run())
            me = self.settings.pod_name
            group.create_task(answer_rebuilds(self.bus, self._rebuilder, self.name, me))

    def _share_changed(self) -> None:
        for reconciler, owns in self._reconcilers:
            reconciler.keep(owns)
        for controller in self._controllers:
            controller.resync()
        if self._rebuilder is not None:
            self._rebuilder.wake()

    async def _drain(self, controllers: list[asyncio.Task[None]]) -> None:
        for controller in self._controllers:
            controller.stop()
        if not self.watch.synced:
            await end(*controllers)
        if controllers:
            await asyncio.wait(controllers)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.events.flush(), EVENTS_FLUSH_TIMEOUT_SECONDS)

    async def _is_synced(self) -> bool:
        return self.watch.synced

    async def _are_in_time(self) -> bool | str:
        late = self.bus.late_handlers()
        return "; ".join(f"{name} has handled one message for {s:.0f} s" for name, s in late.items()) or True


Build = Callable[[S, Host], Operator]
"""The composition root of a service: (settings, host) -> the operator with all parts."""


async def serve(name: str, settings: S, build: Build[S], stop: asyncio.Event, clock: Clock) -> None:
    """Connect to the API server and the bus, and run until `stop`. Leases always use the system's clock."""
    async with await kube.connect(settings.kubeconfig) as api:
        bus = await bus_library.connect(Access.of(settings, name), name=name)
        try:
            await build(settings, Host(api, bus, clock, lease_clock=SystemClock())).run(stop)
        finally:
            await bus.close()


def run_controller(name: str, settings: type[S], build: Build[S], clock: Clock | None = None) -> int:
    """Read the settings and serve until a signal: a controller's whole `main`.

    Args:
        clock: None is the system's; tests pass one that runs faster.

    Returns:
        The exit code: 0 after a clean stop, 1 after an error, which is logged.
    """

    async def main(stop: asyncio.Event) -> None:
        loaded = load_settings(settings)
        logging.set_up(name, loaded.log_level)
        measured = telemetry.set_up(name)
        try:
            await serve(name, loaded, build, stop, clock or SystemClock())
        finally:
            measured.shutdown()

    logging.set_up(name)
    return run_service(main)
