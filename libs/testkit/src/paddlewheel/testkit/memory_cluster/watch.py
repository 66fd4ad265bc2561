"""One watch of the cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Literal

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import Change, Object, Resource
from paddlewheel.testkit.memory_cluster.selectors import matches


class MemoryWatch:
    """Filters changes by a selector. An object that stops matching counts as deleted."""

    def __init__(self, resource: Resource, namespace: str, label_selector: str, field_selector: str) -> None:
        self.resource = resource
        self._namespace = namespace
        self._selectors = (label_selector, field_selector)
        self._seen: dict[Key, Object] = {}
        self._is_cut = False
        self._changes: asyncio.Queue[Change | Literal["synced", "absent"]] = asyncio.Queue()

    def start(self, resource: Resource, objects: Iterable[Object]) -> None:
        """Report the listed objects, which come before the watched changes."""
        if resource != self.resource:
            return
        for obj in objects:
            self.put(resource, Change("ADDED", obj, listed=True))
        self._changes.put_nowait("synced")

    def end(self, resource: Resource) -> None:
        """Report that the resource is not installed."""
        if resource == self.resource:
            self._seen.clear()
            self._changes.put_nowait("absent")

    def cut(self) -> None:
        """Drop all changes until `relist`."""
        self._is_cut = True

    def relist(self, objects: Iterable[Object], version: str) -> None:
        """Report the differences from the last reported objects, as a client does after 410 Gone.

        Args:
            version: the resourceVersion of the list.
        """
        # The client is slow to import, and most tests do not need it.
        from paddlewheel.kube.api_watch import differences

        self._is_cut, known = False, self._seen
        self._seen = {key_of(obj): obj for obj in objects if self._selects(obj)}
        for change in differences(known, self._seen, version):
            self._changes.put_nowait(change)

    def put(self, resource: Resource, change: Change) -> None:
        """Report a change of any object of the cluster, if the selectors match."""
        key = key_of(change.obj)
        if self._is_cut or resource != self.resource or self._namespace not in ("", key.namespace):
            return
        if change.type != "DELETED" and self._selects(change.obj):
            kind: Literal["ADDED", "MODIFIED"] = "MODIFIED" if key in self._seen else "ADDED"
            self._changes.put_nowait(Change(kind, change.obj, listed=change.listed))
            self._seen[key] = change.obj
        elif key in self._seen:
            del self._seen[key]
            self._changes.put_nowait(Change("DELETED", change.obj))

    def _selects(self, obj: Object) -> bool:
        return self._namespace in ("", key_of(obj).namespace) and matches(obj, *self._selectors)

    async def follow(
        self, on_synced: Callable[[], None] | None, on_absent: Callable[[], None] | None
    ) -> AsyncGenerator[Change, None]:
        """Yield the changes as they arrive, forever."""
        marks = {"synced": on_synced, "absent": on_absent}
        while True:
            change = await self._changes.get()
            if isinstance(change, Change):
                yield change
            elif callback := marks[change]:
                callback()
