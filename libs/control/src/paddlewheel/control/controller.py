"""The reconcile loop: workers that take keys from a queue, backoff, and a periodic resync of all keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import structlog
from opentelemetry import metrics, trace
from opentelemetry.metrics import Meter

from paddlewheel.contracts.keys import Key
from paddlewheel.control.metrics import RECONCILE_SPAN, Outcome, make_instruments
from paddlewheel.control.queue import KeyedQueue
from paddlewheel.core.backoff import Backoff
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Conflict, Permanent, Retry

log = structlog.get_logger(__name__)
tracer = trace.get_tracer(__name__)


@dataclass(frozen=True)
class Result:
    """The result of a reconcile: seconds until the next one. None waits for a change."""

    requeue_after: float | None = None


Reconcile = Callable[[Key], Awaitable[Result]]


def _owns_all(_: Key) -> bool:
    return True


def _none(_: Key) -> bool:
    return False


class Controller:
    """Calls `reconcile` for each key that was woken. A key is never reconciled by two workers at once.

    The error decides when a failed key is reconciled again:

    - Retry: after its `after` seconds, or after the backoff.
    - Conflict (the object has changed): after the backoff.
    - Permanent: after the cap of the backoff. Only a change of the object helps, and a change wakes the key.
    - Any other exception is a bug. It is logged with its traceback, and retried after the backoff.

    A key is reconciled at the earliest of its scheduled times. A success cancels the retries and replaces the
    requeue time of the previous success. A failure keeps that requeue time. Neither changes a delayed `wake`.
    Changes and retries have priority over routine work: a resync, or a requeue after a success.

    Args:
        name: label of the metrics, a single token.
        keys: returns all existing keys. Called at the start and every `resync` seconds.
        owns: whether a key belongs to this replica. Called again just before each reconcile.
        is_first: whether a changed key has priority over other changed keys.
        workers: number of keys that are reconciled at the same time.
        resync: seconds between two resyncs of all keys.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        clock: Clock,
        keys: Callable[[], Iterable[Key]],
        owns: Callable[[Key], bool] = _owns_all,
        is_first: Callable[[Key], bool] = _none,
        workers: int = 4,
        backoff: Backoff[Key] | None = None,
        resync: float = 300.0,
        meter: Meter | None = None,
    ) -> None:
        self._name = name
        self._reconcile = reconcile
        self._clock = clock
        self._keys = keys
        self._owns = owns
        self._workers = workers
        self._backoff = backoff or Backoff()
        self._resync = resync
        self._queue: KeyedQueue[Key] = KeyedQueue(clock, is_first)
        self._stopped = asyncio.Event()
        self._metrics = make_instruments(meter or metrics.get_meter(__name__), name, self._queue.__len__)

    def wake(self, key: Key, after: float = 0.0) -> None:
        """Reconcile the key now, or after `after` seconds. Keys of other replicas are ignored."""
        if self._owns(key):
            self._queue.add_after(key, after)

    def resync(self) -> None:
        """Reconcile every key of this replica. Runs periodically, and when the members change."""
        keys = list(self._keys())
        self._backoff.retain(set(keys))
        for key in filter(self._owns, keys):
            self._queue.add(key, routine=True)

    def stop(self) -> None:
        """Let the workers finish their current keys. Then `run` returns."""
        self._stopped.set()

    async def run(self) -> None:
        """Work until `stop()`. Cancellation is safe at any time, because reconciles are idempotent."""
        async with asyncio.TaskGroup() as group:
            timers = [group.create_task(self._queue.run()), group.create_task(self._resync_forever())]
            for _ in range(self._workers):
                group.create_task(self._work())
            await self._stopped.wait()
            self._queue.close()
            for timer in timers:
                timer.cancel()

    async def _resync_forever(self) -> None:
        while True:
            self.resync()
            await self._clock.sleep(self._resync)

    async def _work(self) -> None:
        while (key := await self._queue.get()) is not None and not self._stopped.is_set():
            try:
                await self._process(key)
            finally:
                self._queue.done(key)
            # A reconcile without work never awaits. A row of them would block every other task.
            await asyncio.sleep(0)

    async def _process(self, key: Key) -> None:
        if not self._owns(key):
            self._rest(key, None)
            return
        started = self._clock.monotonic()
        with tracer.start_as_current_span(RECONCILE_SPAN) as span:
            span.set_attributes({"controller": self._name, "key": str(key)})
            outcome = await self._attempt(key)
        self._metrics.record(outcome, self._clock.monotonic() - started)

    def _rest(self, key: Key, seconds: float | None) -> None:
        """Cancel the retries, and schedule the key after `seconds`. None means not at all."""
        self._backoff.reset(key)
        self._queue.set_timer(key, "retry", None)
        self._queue.set_timer(key, "requeue", seconds)

    async def _attempt(self, key: Key) -> Outcome:
        """Reconcile the key, and set the timer for its next attempt."""
        try:
            result = await self._reconcile(key)
        except Exception as error:
            outcome, seconds = self._failure(key, error)
            self._queue.set_timer(key, "retry", seconds)
            return outcome
        self._rest(key, result.requeue_after)
        return "success" if result.requeue_after is None else "requeue"

    def _failure(self, key: Key, error: Exception) -> tuple[Outcome, float]:
        """The kind of the failure, and the seconds until the next attempt."""
        fields = {"controller": self._name, "key": str(key), "error": str(error)}
        if isinstance(error, Retry):
            log.info("reconcile failed, will be retried", **fields)
            wait = self._backoff.next(key)
            return "retry", error.after or wait
        if isinstance(error, Conflict):
            log.debug("object changed during the reconcile, will be retried", **fields)
            return "retry", self._backoff.next(key)
        if isinstance(error, Permanent):
            log.warning("reconcile cannot succeed until the object changes", **fields)
            return "permanent", self._backoff.cap
        log.exception("reconcile failed because of a bug", controller=self._name, key=str(key))
        return "bug", self._backoff.next(key)
