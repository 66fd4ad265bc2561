"""Follows an object so that its end is seen even when it is deleted between two reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from paddlewheel.contracts.objects import deleted_at, key_of, uid_of
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import Change, Object, Resource, WatchedCluster

STATUS_INTERVAL_SECONDS = 0.5
"""Time between two reads of the status of an object."""
_LAST_CHANGE_TIMEOUT_SECONDS = 5.0
"""Time for the watch to report how a deleted object ended."""


class ObjectWatch:
    """Watches an object. An object with a time to live of 0 is deleted as it ends, before its status is read.

    Attributes:
        is_interrupted: the object was being deleted before it ended.
    """

    def __init__(
        self, api: WatchedCluster, resource: Resource, obj: Object, is_final: Callable[[Object], bool]
    ) -> None:
        self._api = api
        self._resource = resource
        self._obj = obj
        self._is_final = is_final
        self.is_interrupted = False
        self._is_there = False
        self._end: Object | None = None
        self._is_gone = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled, or until the server refuses. Then `look` sees what it reads itself."""
        with suppress(Permanent):
            await self._watch()
        self._is_gone.set()

    async def _watch(self) -> None:
        key = key_of(self._obj)
        found = self._api.watch(
            self._resource,
            key.namespace,
            field_selector=f"metadata.name={key.name}",
            on_synced=self._on_listed,
            raises_permanent=True,
        )
        async with aclosing(found) as changes:
            async for change in changes:
                if uid_of(change.obj) == uid_of(self._obj):
                    self._see(change)

    def _see(self, change: Change) -> None:
        self._is_there = True
        self._note(change.obj)
        if change.type == "DELETED":
            self._is_gone.set()

    def _note(self, obj: Object) -> None:
        if self._is_final(obj):
            self._end = obj
        elif deleted_at(obj):
            self.is_interrupted = True

    def _on_listed(self) -> None:
        """An object that was deleted before the watch began is not reported."""
        if not self._is_there:
            self._is_gone.set()

    async def look(self) -> Object | None:
        """The object as it is now, or as it ended before it was deleted.

        None when it was deleted before it ended, or when its end was not seen. Raises Retry.
        """
        with suppress(NotFound):
            found = await self._api.get(self._resource, key_of(self._obj))
            if uid_of(found) == uid_of(self._obj):
                self._note(found)
                return found
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_CHANGE_TIMEOUT_SECONDS):
                await self._is_gone.wait()
        return self._end


@asynccontextmanager
async def watched(
    api: WatchedCluster, resource: Resource, obj: Object, is_final: Callable[[Object], bool]
) -> AsyncIterator[ObjectWatch]:
    """Watch an object while the block runs."""
    watch = ObjectWatch(api, resource, obj, is_final)
    watching = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        await end(watching)
