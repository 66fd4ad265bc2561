"""A controller's own composition root under the `Harness`: the test plays its queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from paddlewheel.contracts.keys import Key
from paddlewheel.control.controller import Reconcile, Result
from paddlewheel.core.clock import Clock
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.ports import Resource
from paddlewheel.operator.serve import Control, Host, Operator
from paddlewheel.testkit.harness import Fakes, Wake


class _QueuedByTest:
    """Stands in for `Controller`: what is woken goes to the harness, which calls `reconcile`."""

    def __init__(self, reconcile: Reconcile, keys: Callable[[], Iterable[Key]], wake: Wake) -> None:
        self.reconcile = reconcile
        self.wake = wake
        self._keys = keys

    def resync(self) -> None:
        for key in self._keys():
            self.wake(key)

    def stop(self) -> None:
        return None

    async def run(self) -> None:
        return None


class OperatorReplica:
    """One replica of a service as its `app.build` wires it.

    Args:
        build: `app.build` with its settings bound.
        kinds: resources that the service reconciles, the harness' default first.

    Attributes:
        passes: keys reconciled so far, by how often.
        owns: by kind, whether an object falls to this replica.
    """

    def __init__(
        self,
        fakes: Fakes,
        wake_of: Callable[[Resource], Wake],
        build: Callable[[Host], Operator],
        *kinds: Resource,
    ) -> None:
        self._kinds = {resource.kind.lower(): resource for resource in kinds}
        self._wake_of = wake_of
        self.reconcilers: dict[Resource, Reconcile] = {}
        self.passes = Counter[Key]()
        self.owns: dict[Resource, Callable[[Key], bool]] = {}
        self._queues: list[_QueuedByTest] = []
        self.operator = build(Host(fakes.cluster, fakes.bus, fakes.clock, self._make_control))

    @property
    def recorder(self) -> EventRecorder:
        """The service's own."""
        return self.operator.events

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Watches, consumers and everything else but the controllers' loops and the events' recorder."""
        tasks = (*self.operator.background_tasks(), *self.operator.consumer_tasks())
        return [task() for task in tasks if task != self.operator.events.run]

    def resync(self) -> None:
        """Wake every object, as the timer does."""
        for queue in self._queues:
            queue.resync()

    async def wait_synced(self) -> None:
        """Return when the caches hold every object."""
        await self.operator.watch.wait_synced()

    def _make_control(
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
    ) -> Control:
        resource = self._kinds[name]

        async def counted(key: Key) -> Result:
            self.passes[key] += 1
            return await reconcile(key)

        self.reconcilers[resource] = counted
        self.owns[resource] = owns
        queue = _QueuedByTest(counted, keys, self._wake_of(resource))
        self._queues.append(queue)
        return queue
