"""A watched, read-only copy of one resource that shows the writes of this process at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.kube.indexed import Index
from paddlewheel.kube.objects import key_of, version_of
from paddlewheel.kube.ports import Change, Keep, Object, Resource, Watches, whole
from paddlewheel.kube.store import WatchedStore

log = LibraryLogger(__name__)


def _ignore(_: object) -> None:
    return None


class Informer(WatchedStore):
    """A read-only copy of one resource that `run` keeps up to date. The owner runs `run` as a task.

    Args:
        namespace: the watched namespace. "" means all namespaces.
        optional: whether the CRD may be missing, or be installed and removed at any time. Without the CRD the
            store is empty, and counts as synced.
        indexes: index functions by name. Each returns the values under which `by_index` finds an object.
        keep: returns the part of an object to store. Indexes and `on_change` get only this part.
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
        optional: bool = False,
        keep: Keep = whole,
    ) -> None:
        super().__init__(clock, indexes)
        self._watches = watches
        self._resource = resource
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._optional = optional
        self._keep = keep
        self._writing: Counter[Key] = Counter()
        self._held: dict[Key, list[Change]] = {}
        self._on_change: Callable[[Change], None] = _ignore
        self._installed = False
        self._synced = asyncio.Event()

    @property
    def resource(self) -> Resource:
        """The watched resource."""
        return self._resource

    @property
    def synced(self) -> bool:
        """True when the first list is in the store, or when an optional resource is not installed."""
        return self._synced.is_set()

    @property
    def installed(self) -> bool:
        """True when the server has the resource and the store holds its objects."""
        return self._installed

    async def wait_synced(self) -> None:
        """Return when `synced` is True. The caller sets the time-out."""
        await self._synced.wait()

    async def write(self, key: Key, call: Awaitable[Object]) -> Object:
        """Await a write of this process to the object, and apply the response.

        The watch event often arrives before the response. Changes of the object that arrive during the call
        are applied to the store at once, but reported only after the response, so that `is_own` can recognize
        the event of this write.
        """
        self._writing[key] += 1
        try:
            answer = await call
            self.wrote(answer)
            return answer
        finally:
            self._writing[key] -= 1
            self._pass_on_held(key)

    def wrote(self, obj: Object) -> None:
        super().wrote(self._keep(obj))
        held = self._held.get(key_of(obj), ())
        if any(version_of(change.obj) == version_of(obj) and not change.listed for change in held):
            self._mark_own(obj)

    async def run(
        self,
        on_change: Callable[[Change], None] = _ignore,
        on_installed: Callable[[bool], None] = _ignore,
    ) -> None:
        """Watch the resource forever. `on_change` is called after the store has applied the change.

        Stale changes, which are older than an own write or a known deletion, are not reported. `on_installed`
        is called when `installed` has changed, after the store was filled or emptied.
        """
        self._on_change = on_change
        changes = self._watches.watch(
            self._resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            on_synced=lambda: self._set_installed(True, on_installed),
            on_absent=(lambda: self._empty(on_installed)) if self._optional else None,
            keep=self._keep,
        )
        async with aclosing(changes):
            async for change in changes:
                if self.apply(change):
                    self._pass_on(change)

    def _pass_on(self, change: Change) -> None:
        key = key_of(change.obj)
        is_open = key in self._held or not self.is_own(change)
        if key in self._writing and is_open:
            self._held.setdefault(key, []).append(change)
        else:
            self._on_change(change)

    def _pass_on_held(self, key: Key) -> None:
        if self._writing[key]:
            return
        del self._writing[key]
        for change in self._held.pop(key, ()):
            self._on_change(change)

    def _empty(self, on_installed: Callable[[bool], None]) -> None:
        for obj in self.clear():
            self._pass_on(Change("DELETED", obj, listed=True))
        self._set_installed(False, on_installed)

    def _set_installed(self, installed: bool, on_installed: Callable[[bool], None]) -> None:
        self._synced.set()
        if installed == self._installed:
            return
        self._installed = installed
        if self._optional:
            log.info("resource installed or removed", resource=self._resource.plural, installed=installed)
        on_installed(installed)
