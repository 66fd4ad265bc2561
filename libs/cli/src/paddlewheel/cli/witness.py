"""Sees every version of an object that is followed, also between two looks at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from paddlewheel.contracts.objects import deleted_at, key_of, uid_of
from paddlewheel.core.errors import NotFound
from paddlewheel.core.tasks import end
from paddlewheel.kube.ports import Change, Object, Resource, WatchedCluster

_NEWS_WITHIN = 5.0
"""Seconds that the watch gets to tell how an object has ended that is gone."""


class Witness:
    """An object whose time to live is 0 goes as it ends: a look at its status may come too late.

    Attributes:
        is_interrupted: it was seen while it was being deleted and had not ended.
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
        """Until cancelled."""
        key = key_of(self._obj)
        only = f"metadata.name={key.name}"
        watch = self._api.watch(self._resource, key.namespace, field_selector=only, on_synced=self._on_listed)
        async with aclosing(watch) as changes:
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
        """The object as it is now, or as it had ended before it was deleted; None when it was deleted before
        its end, or nobody has seen that. Raises Retry."""
        with suppress(NotFound):
            found = await self._api.get(self._resource, key_of(self._obj))
            if uid_of(found) == uid_of(self._obj):
                self._note(found)
                return found
        with suppress(TimeoutError):
            async with asyncio.timeout(_NEWS_WITHIN):
                await self._is_gone.wait()
        return self._end


@asynccontextmanager
async def watched(
    api: WatchedCluster, resource: Resource, obj: Object, is_final: Callable[[Object], bool]
) -> AsyncIterator[Witness]:
    """A witness of the object, for as long as it is needed."""
    witness = Witness(api, resource, obj, is_final)
    watching = asyncio.create_task(witness.run())
    try:
        yield witness
    finally:
        await end(watching)
