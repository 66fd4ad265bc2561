"""A watched, read-only copy of one resource that shows this process's own writes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

from paddlewheel.core.clock import Clock
from paddlewheel.kube.indexed import Index
from paddlewheel.kube.ports import Change, Resource, Watches
from paddlewheel.kube.store import WatchedStore


def _ignore(_: Change) -> None:
    return None


class Informer(WatchedStore):
    """A Store kept up to date by `run`, which the owner runs as a task.

    Args:
        namespace: "" means everywhere.
        indexes: name -> the values under which an object is found by `by_index`.
    """

    def __init__(
        self,
        watches: Watches,
        resource: Resource,
        namespace: str = "",
        *,
        clock: Clock,
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, Index] | None = None,
    ) -> None:
        super().__init__(clock, indexes)
        self._watches = watches
        self._resource = resource
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._synced = asyncio.Event()

    @property
    def resource(self) -> Resource:
        """What is watched."""
        return self._resource

    @property
    def synced(self) -> bool:
        """The first list has been taken in whole."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return when the first list has been taken in; the caller sets the deadline."""
        await self._synced.wait()

    async def run(self, on_change: Callable[[Change], None] = _ignore) -> None:
        """Follow the resource forever; `on_change` is called after the store has applied the change.

        Stale changes (older than an own write or a deletion that the store knows of) are not passed on.
        """
        changes = self._watches.watch(
            self._resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            on_synced=self._synced.set,
        )
        async with aclosing(changes):
            async for change in changes:
                if self.apply(change):
                    on_change(change)
