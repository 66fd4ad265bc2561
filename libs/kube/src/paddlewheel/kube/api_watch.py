"""Lists a resource and then watches it forever, across time-outs, restarts and expired resourceVersions."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Protocol

import aiohttp
import orjson

from paddlewheel.contracts.keys import Key
from paddlewheel.core.backoff import Backoff
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, PaddlewheelError, Permanent, Retry
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.kube.api_errors import Expired, error_of, unreachable
from paddlewheel.kube.objects import key_of, uid_of, version_of, without_managed_fields
from paddlewheel.kube.ports import Change, Keep, Object, Objects, Resource, whole

WATCH_TIMEOUT_SECONDS = (240, 300)
"""Range of the random time after which the server ends a watch, so that watches do not end together."""
RETRY_INTERVAL_SECONDS = (0.2, 10.0)
"""Smallest and largest interval between attempts while the server fails."""
ABSENT_RETRY_INTERVAL_SECONDS = 4.0
"""Largest interval between attempts, without jitter, for a resource that may not be installed."""
JITTER = 0.2

log = LibraryLogger(__name__)


class Lister(Protocol):
    """The calls of the client that a watch uses."""

    async def list_versioned(
        self, resource: Resource, namespace: str, query: Mapping[str, str]
    ) -> tuple[Objects, str]: ...

    async def open_stream(
        self, resource: Resource, namespace: str, query: Mapping[str, str]
    ) -> aiohttp.ClientResponse: ...


class ApiWatch:
    """One watch. It remembers the objects it has reported, and the resourceVersion to continue from."""

    def __init__(
        self,
        lister: Lister,
        clock: Clock,
        resource: Resource,
        namespace: str,
        query: Mapping[str, str],
        keep: Keep = whole,
    ) -> None:
        self._lister = lister
        self._clock = clock
        self._resource = resource
        self._namespace = namespace
        self._query = dict(query)
        self._keep = keep
        self._known: dict[Key, Object] = {}
        self._version = ""
        self._backoff: Backoff[Resource] = Backoff(*RETRY_INTERVAL_SECONDS, jitter=JITTER)

    async def follow(
        self,
        on_synced: Callable[[], None] | None = None,
        on_absent: Callable[[], None] | None = None,
        *,
        raises_permanent: bool = False,
    ) -> AsyncGenerator[Change, None]:
        """All changes, forever. By default every error is retried: a missing CRD or role may appear later."""
        if on_absent:
            self._backoff.cap = ABSENT_RETRY_INTERVAL_SECONDS
        while True:
            try:
                if not self._version:
                    for change in await self._relist():
                        yield change
                    if on_synced:
                        on_synced()
                async with aclosing(self._stream()) as changes:
                    async for change in changes:
                        yield change
            except Expired:
                self._version = ""
            except NotFound as error:
                if on_absent:
                    self._version, self._known = "", {}
                    on_absent()
                else:
                    log.warning("resource not found", resource=self._resource.plural, error=str(error))
            except PaddlewheelError as error:
                if raises_permanent and isinstance(error, Permanent):
                    raise
                log.warning("watch interrupted", resource=self._resource.plural, error=str(error))
            await self._wait()

    async def _wait(self) -> None:
        """Wait before the next attempt: briefly after a watch with events, longer after each one without."""
        await self._clock.sleep(self._backoff.next(self._resource))

    async def _relist(self) -> list[Change]:
        """List again, and return the differences from the known objects."""
        objects, self._version = await self._lister.list_versioned(
            self._resource, self._namespace, self._query
        )
        listed = {key_of(obj): self._keep(obj) for obj in objects}
        changes = differences(self._known, listed, self._version)
        self._known = listed
        return changes

    async def _stream(self) -> AsyncGenerator[Change, None]:
        """The changes of one connection."""
        query = self._query | {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_TIMEOUT_SECONDS)),  # noqa: S311 - spreads load only
        }
        response = await self._lister.open_stream(self._resource, self._namespace, query)
        try:
            async with aclosing(_lines(response)) as lines:
                async for line in lines:
                    change = self._read(line)
                    self._backoff.reset(self._resource)
                    if change:
                        yield change
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise unreachable(error) from error
        finally:
            # Close instead of releasing the connection to the pool: the response has no end.
            response.close()

    def _read(self, line: bytes) -> Change | None:
        """Apply the event of a line. Raises Retry for a line without an event, perhaps from a proxy."""
        try:
            return self._apply(orjson.loads(line))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Retry("NoWatchEvent", f"the watch returned a line without an event: {error!r}") from error

    def _apply(self, event: Object) -> Change | None:
        """Record the change of an event. A bookmark only moves the version.

        Raises:
            Expired: the resourceVersion is too old.
            Retry: the server ends the watch for another reason.
        """
        obj: Object = without_managed_fields(event["object"])
        if event["type"] == "ERROR":
            raise error_of(int(obj.get("code", 500)), {}, orjson.dumps(obj))
        if event["type"] == "BOOKMARK":
            self._version = version_of(obj)
            return None
        key, self._version, obj = key_of(obj), version_of(obj), self._keep(obj)
        if event["type"] == "DELETED":
            self._known.pop(key, None)
            return Change("DELETED", obj)
        known = key in self._known
        self._known[key] = obj
        return Change("MODIFIED" if known else "ADDED", obj)


def differences(known: Mapping[Key, Object], listed: Mapping[Key, Object], version: str) -> list[Change]:
    """The changes from the known objects to the listed ones. A re-created object is deleted and added.

    Args:
        version: the resourceVersion of the list. Absent objects are reported as deleted at this version.
    """
    changes = []
    for key, obj in known.items():
        new = listed.get(key)
        if not _is_same(obj, new):
            noticed_at = version_of(new) if new else version
            changes.append(Change("DELETED", _at_version(obj, noticed_at), listed=True))
    for key, obj in listed.items():
        old = known.get(key)
        if old is None or not _is_same(old, obj):
            changes.append(Change("ADDED", obj, listed=True))
        elif version_of(old) != version_of(obj):
            changes.append(Change("MODIFIED", obj, listed=True))
    return changes


def _at_version(obj: Object, version: str) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}


def _is_same(old: Object, new: Object | None) -> bool:
    return new is not None and uid_of(old) == uid_of(new)


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Lines of any length. `readline` is limited to a buffer, which an object can exceed."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
