"""A watched, read-only copy of one resource."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import aclosing

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import Change, Object, Objects, Resource, Watches

Keys = list[Key]
Index = Callable[[Object], list[str]]


def _ignore(_: Change) -> None:
    return None


class Informer:
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
        label_selector: str = "",
        field_selector: str = "",
        indexes: Mapping[str, Index] | None = None,
    ) -> None:
        self._watches = watches
        self._resource = resource
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._index_functions = dict(indexes or {})
        self._objects: dict[Key, Object] = {}
        self._indexes: dict[str, dict[str, set[Key]]] = {
            name: defaultdict(set) for name in self._index_functions
        }
        self._synced = asyncio.Event()

    @property
    def synced(self) -> bool:
        """The first list has been taken in whole."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return when the first list has been taken in; the caller sets the deadline."""
        await self._synced.wait()

    def get(self, key: Key) -> Object | None:
        """The object as last seen. Shared: do not change it."""
        return self._objects.get(key)

    def list(self, namespace: str = "") -> Objects:
        """All objects, or those of one namespace, in the order of their keys."""
        keys = (key for key in self._objects if not namespace or key.namespace == namespace)
        return [self._objects[key] for key in sorted(keys)]

    def by_index(self, index: str, value: str) -> Objects:
        """Objects for which the named index function gave `value`, in the order of their keys."""
        keys = self._indexes[index].get(value, ())
        return [self._objects[key] for key in sorted(keys)]

    def keys(self) -> Keys:
        """All keys: what a Controller resyncs over."""
        return list(self._objects)

    async def run(self, on_change: Callable[[Change], None] = _ignore) -> None:
        """Follow the resource for ever; `on_change` is called after the store has taken the change in."""
        changes = self._watches.watch(
            self._resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            on_synced=self._synced.set,
        )
        async with aclosing(changes):
            async for change in changes:
                self._take_in(change)
                on_change(change)

    def _take_in(self, change: Change) -> None:
        key = key_of(change.obj)
        if (old := self._objects.pop(key, None)) is not None:
            self._unindex(key, old)
        if change.type == "DELETED":
            return
        self._objects[key] = change.obj
        for name, function in self._index_functions.items():
            for value in function(change.obj):
                self._indexes[name][value].add(key)

    def _unindex(self, key: Key, old: Object) -> None:
        for name, function in self._index_functions.items():
            for value in function(old):
                keys = self._indexes[name][value]
                keys.discard(key)
                if not keys:
                    del self._indexes[name][value]
