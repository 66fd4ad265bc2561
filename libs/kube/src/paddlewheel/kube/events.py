"""Kubernetes Events about our objects. Repeats increase a count, the rate is limited, failures are logged."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, NotFound, PaddlewheelError
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import EVENTS, Cluster, Object, Resource

BURST = 25.0
"""Maximum number of Events of one type about one object in a row. One more is allowed every
`REFILL_INTERVAL_SECONDS`."""
REFILL_INTERVAL_SECONDS = 60.0
WAITING = 512
"""Maximum number of Events of one type that wait to be written. Further ones are dropped."""
TRACKED = 4096
"""Maximum number of objects whose rate is remembered."""
MESSAGE_LIMIT = 1024
"""Maximum number of characters that the API server accepts."""

Type = Literal["Normal", "Warning"]

log = LibraryLogger(__name__)


@dataclass(frozen=True)
class _Occurrence:
    """One call of the recorder. Calls with the same `name` share one Event."""

    key: Key
    regarding: tuple[tuple[str, str], ...]
    type: Type
    reason: str
    message: str
    at: str

    @property
    def name(self) -> str:
        parts = "\0".join((str(self.regarding), self.type, self.reason, self.message))
        digest = hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()
        return f"{self.key.name[:200].rstrip('.-')}.{digest}"


class EventRecorder:
    """Queues Events and writes them in `run`, which the owner runs as a task.

    Warnings are written first, and no number of Normal Events displaces them.

    Args:
        component: name of the service, which `kubectl describe` shows as the source.
        instance: name of the replica.
    """

    def __init__(self, cluster: Cluster, component: str, instance: str, clock: Clock) -> None:
        self._cluster = cluster
        self._component = component
        self._instance = instance
        self._clock = clock
        self._waiting: asyncio.PriorityQueue[tuple[bool, int, _Occurrence]] = asyncio.PriorityQueue()
        """Sorted by type, and then in the order of the calls."""
        self._calls = count()
        self._counts: Counter[Type] = Counter()
        """Events in the queue."""
        self._tokens: OrderedDict[tuple[str, Type], tuple[float, float]] = OrderedDict()

    def normal(self, resource: Resource, obj: Object, reason: str, message: str) -> None:
        """Record an expected change. `reason` is CamelCase."""
        self._accept(resource, obj, "Normal", reason, message)

    def warning(self, resource: Resource, obj: Object, reason: str, message: str) -> None:
        """Record a problem that a person has to fix. `reason` is CamelCase."""
        self._accept(resource, obj, "Warning", reason, message)

    async def run(self) -> None:
        """Write the queued Events, forever."""
        while True:
            _, _, event = await self._waiting.get()
            self._counts[event.type] -= 1
            try:
                await self._write(event)
            except PaddlewheelError as error:
                log.warning("event not written", reason=event.reason, key=str(event.key), error=str(error))
            except Exception:
                # One text must not end the Events of all objects.
                log.exception("event not written", reason=event.reason, key=str(event.key))
            finally:
                self._waiting.task_done()

    async def flush(self) -> None:
        """Return when every queued Event has been written or dropped."""
        await self._waiting.join()

    def _accept(self, resource: Resource, obj: Object, type_: Type, reason: str, message: str) -> None:
        if self._counts[type_] >= WAITING or not self._take_token(uid_of(obj), type_):
            log.debug("event dropped", reason=reason, key=str(key_of(obj)))
            return
        at = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        event = _Occurrence(
            key_of(obj), _regarding(resource, obj), type_, reason, message[:MESSAGE_LIMIT], at
        )
        self._counts[type_] += 1
        self._waiting.put_nowait((type_ == "Normal", next(self._calls), event))

    def _take_token(self, uid: str, type_: Type) -> bool:
        now = self._clock.monotonic()
        tokens, at = self._tokens.pop((uid, type_), (BURST, now))
        tokens = min(BURST, tokens + (now - at) / REFILL_INTERVAL_SECONDS)
        allowed = tokens >= 1
        self._tokens[uid, type_] = (tokens - 1 if allowed else tokens, now)
        if len(self._tokens) > TRACKED:
            self._tokens.popitem(last=False)
        return allowed

    async def _write(self, event: _Occurrence) -> None:
        try:
            await self._cluster.create(EVENTS, self._manifest(event))
        except AlreadyExists:
            await self._count_again(event)

    async def _count_again(self, event: _Occurrence) -> None:
        key = Key(_namespace(event.key), event.name)
        try:
            seen = await self._cluster.get(EVENTS, key)
            again = {"count": int(seen.get("count") or 1) + 1, "lastTimestamp": event.at}
            await self._cluster.patch(EVENTS, key, again)
        except NotFound:
            # The server deletes Events after an hour, and has just deleted this one.
            await self._cluster.create(EVENTS, self._manifest(event))

    def _manifest(self, event: _Occurrence) -> dict[str, Any]:
        return {
            "metadata": {"namespace": _namespace(event.key), "name": event.name},
            "involvedObject": dict(event.regarding),
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "count": 1,
            "firstTimestamp": event.at,
            "lastTimestamp": event.at,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def _regarding(resource: Resource, obj: Object) -> tuple[tuple[str, str], ...]:
    """The reference to the object. A resourceVersion would make every repeat a new Event."""
    key = key_of(obj)
    fields = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "namespace": key.namespace,
        "name": key.name,
        "uid": uid_of(obj),
    }
    return tuple((name, value) for name, value in fields.items() if value)


def _namespace(key: Key) -> str:
    """The namespace of the Event: `default` for objects without a namespace."""
    return key.namespace or "default"
