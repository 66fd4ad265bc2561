"""A controller under test over fakes: memory cluster, memory bus and a clock that the test moves.

A `Harness` is one replica of a controller. It plays the controller's queue: what the replica's watches wake
is collected, and the test decides when which key is reconciled. Several harnesses over the same `Fakes` are
replicas of one service. A controller's own harness is a subclass:

    class JobHarness(Harness[JobReplica]):
        def __init__(self, fakes: Fakes | None = None, options: Options | None = None) -> None:
            super().__init__(lambda fakes, wake_of: JobReplica(fakes, wake_of, options), JOBS, fakes)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from paddlewheel.bus.streams import StreamSpec
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import REASONS
from paddlewheel.control.controller import Reconcile, Result
from paddlewheel.core.errors import Conflict, NotFound, Retry
from paddlewheel.core.tasks import end
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import EVENTS, Object, Objects, Resource
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.memory_cluster import Intercept, MemoryCluster, Verb

TURNS = 60
"""Turns of the event loop after which a replica that never rests has got every watch notification."""
PASSES = 30
"""Reconciles of one key after which it is considered not to settle."""
RETRY_AFTER = 1.0
"""Seconds until a reconcile that raised Conflict, or Retry without a delay, is due again."""


class Ref(NamedTuple):
    """One object."""

    resource: Resource
    key: Key


class KubernetesEvent(NamedTuple):
    """A Kubernetes Event as `kubectl describe` shows it."""

    type: str
    reason: str
    message: str


class Wake(Protocol):
    """Puts a key on the queue, as `Controller.wake` does."""

    def __call__(self, key: Key, after: float = 0.0) -> None: ...


@dataclass(frozen=True)
class Fakes:
    """The fakes that outlive a replica: the API server, the bus and the clock."""

    clock: ManualClock
    cluster: MemoryCluster
    bus: MemoryBus

    @classmethod
    def create(cls) -> Fakes:
        clock = ManualClock()
        return cls(clock, MemoryCluster(clock.now), MemoryBus(clock))


class Replica(Protocol):
    """The controller-specific part: one replica's objects, wired as its `app.py` wires them."""

    @property
    def recorder(self) -> EventRecorder:
        """The recorder of the replica's Kubernetes Events. The harness runs it."""
        ...

    @property
    def reconcilers(self) -> Mapping[Resource, Reconcile]:
        """Kind to its reconcile function. The first kind is the harness' default."""
        ...

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Watches, consumers and the like, run beside the reconciles; cancelled when the replica ends."""
        ...

    async def wait_synced(self) -> None:
        """Return when the caches hold every object."""
        ...


R = TypeVar("R", bound=Replica)
Build = Callable[[Fakes, Callable[[Resource], Wake]], R]
"""Makes a replica over the fakes. The second argument gives the wake function of a kind."""


@dataclass
class _Queue:
    """The keys to reconcile, each once and in order, and when delayed keys are due."""

    clock: ManualClock
    ready: dict[Ref, None] = field(default_factory=dict)
    due: dict[Ref, float] = field(default_factory=dict)

    def add(self, ref: Ref, after: float = 0.0) -> None:
        if after <= 0:
            self.ready[ref] = None
            return
        due = self.clock.monotonic() + after
        self.due[ref] = min(due, self.due.get(ref, due))

    def take(self) -> Ref:
        ref = next(iter(self.ready))
        del self.ready[ref]
        return ref

    def release_due(self) -> None:
        for ref in [r for r, due in self.due.items() if due <= self.clock.monotonic()]:
            del self.due[ref]
            self.ready[ref] = None


class Harness(Generic[R]):
    """One replica of a controller, with methods for tests.

    Methods with an argument `resource` use the replica's first kind if it is None.

    Args:
        build: creates the replica; `restart` calls it again.
        stream: the stream that stores the controller's facts.
        fakes: fakes of another harness, of which this one is a second replica; None = new fakes.
    """

    def __init__(self, build: Build[R], stream: StreamSpec, fakes: Fakes | None = None) -> None:
        self.fakes = fakes or Fakes.create()
        self.clock, self.cluster, self.bus = self.fakes.clock, self.fakes.cluster, self.fakes.bus
        self._build = build
        self._stream = stream
        self._queue = _Queue(self.clock)
        self._tasks: list[asyncio.Task[None]] = []
        self.replica = self._make()

    # One replica: start, end, restart

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """The replica runs while the block does. A background task that failed fails the test."""
        await self._start()
        try:
            yield self
        except BaseException:
            await end(*self._tasks)
            raise
        await self._check_reasons()
        await self._stop()

    async def _check_reasons(self) -> None:
        """Conditions and Kubernetes Events use only reasons that are listed and have a meaning."""
        objects = [obj for resource in self.replica.reconcilers for obj in await self.objects(resource)]
        conditions = [c for obj in objects for c in (obj.get("status") or {}).get("conditions") or ()]
        own = [event for event in await self.objects(EVENTS) if event.get("source")]
        said = {entry.get("reason", "") for entry in (*conditions, *own)}
        assert said <= REASONS, f"add {sorted(said - REASONS)} to paddlewheel.contracts.reasons"

    async def restart(self) -> None:
        """The process is killed, and a new one starts with empty caches and an empty queue."""
        await self._stop()
        self._queue = _Queue(self.clock)
        self.replica = self._make()
        await self._start()

    def _make(self) -> R:
        queue = self._queue

        def wake_of(resource: Resource) -> Wake:
            def wake(key: Key, after: float = 0.0) -> None:
                queue.add(Ref(resource, key), after)

            return wake

        return self._build(self.fakes, wake_of)

    async def _start(self) -> None:
        parts = [*self.replica.background(), self.replica.recorder.run()]
        self._tasks = [asyncio.create_task(part) for part in parts]
        await self.replica.wait_synced()

    async def _stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        failed = [task for task in tasks if task.done()]
        await end(*tasks)
        _raise_failures(failed)

    # Time and reconciles

    async def catch_up(self) -> None:
        """Let the watches deliver every change."""
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if not ready:
                break
        _raise_failures(self._tasks)

    async def reconcile(self, key: Key, resource: Resource | None = None) -> Result:
        """One pass with caches that have seen everything. Raises what the reconciler raises."""
        await self.catch_up()
        reconcile = self.replica.reconcilers[resource or self.resource]
        return await reconcile(key)

    async def settle(self, key: Key, resource: Resource | None = None) -> Result:
        """Pass after pass until one writes nothing; gives the last one's result."""
        for _ in range(PASSES):
            with self.counted_writes() as writes:
                result = await self.reconcile(key, resource)
            if not writes:
                return result
        raise AssertionError(f"{key} does not settle, the last pass wrote {writes}")

    async def drain_queue(self) -> None:
        """Reconcile what was woken until nothing is; delayed keys wait for `advance`."""
        passes = Counter[Ref]()
        await self.catch_up()
        while self._queue.ready:
            ref = self._queue.take()
            passes[ref] += 1
            assert passes[ref] <= PASSES, f"the queue never empties: {ref.key} is woken again and again"
            await self._process(ref)
            await self.catch_up()

    async def advance(self, seconds: float) -> None:
        """Move the clock, let timers run, and reconcile what is due by then."""
        await self.clock.advance(seconds)
        self._queue.release_due()
        await self.drain_queue()

    async def _process(self, ref: Ref) -> None:
        try:
            wish = (await self.replica.reconcilers[ref.resource](ref.key)).requeue_after
        except Retry as error:
            wish = RETRY_AFTER if error.after is None else error.after
        except Conflict:
            wish = RETRY_AFTER
        if wish is not None:
            self._queue.add(ref, wish)

    @property
    def woken(self) -> list[Key]:
        """Keys on the queue, in order, of whatever kind."""
        return [ref.key for ref in self._queue.ready]

    @property
    def delays(self) -> dict[Key, float]:
        """Seconds from now until delayed keys are due."""
        now = self.clock.monotonic()
        return {ref.key: due - now for ref, due in self._queue.due.items()}

    def forget_woken(self) -> None:
        """Empty the queue, so that a test sees what is woken from here on."""
        self._queue.ready.clear()

    # Objects

    @property
    def resource(self) -> Resource:
        """The replica's first kind."""
        return next(iter(self.replica.reconcilers))

    async def create(self, obj: Object, resource: Resource | None = None) -> Key:
        """Create an object as `kubectl create` does."""
        return key_of(await self.cluster.create(resource or self.resource, obj))

    async def get(self, key: Key, resource: Resource | None = None) -> Object:
        """Raises NotFound."""
        return await self.cluster.get(resource or self.resource, key)

    async def exists(self, key: Key, resource: Resource | None = None) -> bool:
        try:
            await self.get(key, resource)
        except NotFound:
            return False
        return True

    async def objects(self, resource: Resource, namespace: str = "") -> Objects:
        """All objects of a kind, sorted by namespace and name."""
        return await self.cluster.list(resource, namespace)

    async def names(self, resource: Resource, namespace: str = "") -> list[str]:
        return [obj["metadata"]["name"] for obj in await self.objects(resource, namespace)]

    async def patch(self, key: Key, patch: Object, resource: Resource | None = None) -> Object:
        """Patch an object as `kubectl patch --type=merge` does."""
        return await self.cluster.patch(resource or self.resource, key, patch)

    async def delete(self, key: Key, resource: Resource | None = None) -> None:
        """Delete an object as `kubectl delete` does."""
        await self.cluster.delete(resource or self.resource, key)

    async def set_status(self, key: Key, status: Object, resource: Resource | None = None) -> Object:
        """Play another controller: merge into the status of an object."""
        patch = {"status": status}
        return await self.cluster.patch(resource or self.resource, key, patch, subresource="status")

    async def status(self, key: Key, resource: Resource | None = None) -> Object:
        """Empty when it has none."""
        return (await self.get(key, resource)).get("status") or {}

    async def condition(self, key: Key, type_: str, resource: Resource | None = None) -> Object:
        """Raises LookupError when there is none of that type."""
        conditions = (await self.status(key, resource)).get("conditions") or ()
        found: dict[str, Object] = {condition["type"]: condition for condition in conditions}
        return found[type_]

    # What came out

    @property
    def published(self) -> list[Event]:
        """The stored facts, oldest first."""
        return self.bus.events(self._stream.name)

    def facts(self) -> list[str]:
        """Names of the stored facts, oldest first."""
        return [name_of(event) for event in self.published]

    async def kubernetes_events(self) -> list[KubernetesEvent]:
        """Sorted; those on their way are written first."""
        await self.replica.recorder.flush()
        listed = await self.cluster.list(EVENTS)
        return sorted(KubernetesEvent(e["type"], e["reason"], e["message"]) for e in listed)

    @contextmanager
    def counted_writes(self) -> Iterator[Counter[tuple[str, str]]]:
        """Writes by (verb, plural) within the block, Kubernetes events left out; filled when it ends."""
        before, found = Counter(self.cluster.writes), Counter[tuple[str, str]]()
        yield found
        found.update(self.cluster.writes - before)
        for verb, plural in list(found):
            if plural == EVENTS.plural:
                del found[verb, plural]

    # Faults

    @contextmanager
    def intercepted(self, intercept: Intercept) -> Iterator[None]:
        """`intercept` sees every call to the API server first; the caller gets what it raises."""
        outer = self.cluster.intercept

        def both(verb: Verb, resource: Resource, key: Key) -> None:
            outer(verb, resource, key)
            intercept(verb, resource, key)

        self.cluster.intercept = both
        try:
            yield
        finally:
            self.cluster.intercept = outer

    @contextmanager
    def failing(
        self, error: Exception, verb: Verb, resource: Resource, *, name: str = "", times: int | None = None
    ) -> Iterator[list[Key]]:
        """Let calls fail within the block. Yields the keys of the failed calls.

        Args:
            name: name of the object whose calls fail; "" = all objects.
            times: number of calls that fail; None = all calls.
        """
        failed: list[Key] = []

        def fail(called: Verb, of: Resource, key: Key) -> None:
            is_meant = (called, of) == (verb, resource) and name in ("", key.name)
            if is_meant and (times is None or len(failed) < times):
                failed.append(key)
                raise error

        with self.intercepted(fail):
            yield failed

    @contextmanager
    def recorded_calls(self) -> Iterator[list[tuple[Verb, str, str]]]:
        """Calls to the API server within the block: verb, plural and name, in order."""
        calls: list[tuple[Verb, str, str]] = []
        with self.intercepted(lambda verb, resource, key: calls.append((verb, resource.plural, key.name))):
            yield calls

    @contextmanager
    def bus_down(self) -> Iterator[None]:
        """Nothing is stored or delivered within the block."""
        self.bus.down = True
        try:
            yield
        finally:
            self.bus.down = False


def name_of(event: Event) -> str:
    """A fact's name: `JobRunning`."""
    return event.type.rpartition(".")[2]


def _raise_failures(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()):
            raise error
