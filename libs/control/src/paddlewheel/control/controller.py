"""The reconcile loop: workers over a keyed queue, backoff, a full resync on a timer."""

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
    """What a reconcile asks for next: seconds until the key is reconciled again, None for no such wish."""

    requeue_after: float | None = None


Reconcile = Callable[[Key], Awaitable[Result]]


def _owns_all(_: Key) -> bool:
    return True


def _none(_: Key) -> bool:
    return False


class Controller:
    """Calls `reconcile` for each key that was woken, never twice at once for one key.

    Retry waits for its own `after` or the backoff; a Conflict (the object has changed) for the backoff; a
    Permanent for the backoff's cap, since only a change of the object helps and that wakes it at once; any
    other exception is a bug: logged with its trace, then the backoff.

    A key is reconciled at the earliest of all times asked for: each success replaces what the one before
    asked for and ends the retries, a failure leaves it in force; a delayed `wake` comes in any case. What is
    only looked at again, by a resync or because a success asked for it, lets changes and retries go first.

    Args:
        name: label of the metrics, one word.
        keys: all keys there are, read at start and every `resync` seconds.
        owns: which keys are this replica's share; asked again just before the work.
        is_first: of keys that have changed, which go before the others.
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
        """Reconcile the key soon, or `after` seconds; keys of other replicas are left alone."""
        if self._owns(key):
            self._queue.add_after(key, after)

    def resync(self) -> None:
        """Look again at every key of this replica's share (on a timer, and when the membership changes)."""
        keys = list(self._keys())
        self._backoff.retain(set(keys))
        for key in filter(self._owns, keys):
            self._queue.add(key, routine=True)

    def stop(self) -> None:
        """Let the workers finish the key they are at; `run` returns then."""
        self._stopped.set()

    async def run(self) -> None:
        """Work until `stop()`; cancellation passes at once and is safe, as reconciles are idempotent."""
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
            # A pass that finds nothing to do waits for nothing: many of them would hold up all else.
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
        """Nothing is to be retried; the key is due after `seconds`, None for never."""
        self._backoff.reset(key)
        self._queue.set_timer(key, "retry", None)
        self._queue.set_timer(key, "requeue", seconds)

    async def _attempt(self, key: Key) -> Outcome:
        """Reconcile, set the timer for the next try, and return how it ended."""
        try:
            result = await self._reconcile(key)
        except Exception as error:
            outcome, seconds = self._failure(key, error)
            self._queue.set_timer(key, "retry", seconds)
            return outcome
        self._rest(key, result.requeue_after)
        return "success" if result.requeue_after is None else "requeue"

    def _failure(self, key: Key, error: Exception) -> tuple[Outcome, float]:
        """What kind of failure it is, and the seconds until the next try."""
        fields = {"controller": self._name, "key": str(key), "error": str(error)}
        if isinstance(error, Retry):
            log.info("reconcile will be retried", **fields)
            wait = self._backoff.next(key)
            return "retry", error.after or wait
        if isinstance(error, Conflict):
            log.debug("object changed meanwhile", **fields)
            return "retry", self._backoff.next(key)
        if isinstance(error, Permanent):
            log.warning("reconcile cannot succeed", **fields)
            return "permanent", self._backoff.cap
        log.exception("reconcile failed by a bug", controller=self._name, key=str(key))
        return "bug", self._backoff.next(key)
