"""The informers of one service, which run and sync together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import Change

log = structlog.get_logger(__name__)

OnChange = Callable[[Change], None]


def _ignore(_: str, __: bool) -> None:
    return None


class Watch:
    """Watched copies of the resources that a service reads, by kind.

    The watch of each service adds which keys a change wakes.
    """

    def __init__(self, informers: Mapping[str, Informer]) -> None:
        self._informers = dict(informers)

    def of(self, kind: str) -> Informer:
        """The watched copy of one kind."""
        return self._informers[kind]

    @property
    def stores(self) -> Mapping[str, Informer]:
        """All watched copies, by kind."""
        return self._informers

    async def run(
        self,
        on_change: Callable[[str, Change], None],
        on_installed: Callable[[str, bool], None] = _ignore,
    ) -> None:
        """Watch all resources forever. `on_change` gets the kind, after the copy has applied the change.

        `on_installed` gets the kind when an optional resource was installed or removed.
        """
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._informers.items():
                installed = partial(on_installed, kind)
                group.create_task(informer.run(_for_kind(on_change, kind), installed))

    async def wait_synced(self) -> None:
        """Return when every copy is synced."""
        for informer in self._informers.values():
            await informer.wait_synced()

    @property
    def synced(self) -> bool:
        """True when every copy is synced."""
        return all(informer.synced for informer in self._informers.values())


def each(*hear: Callable[[str, Change], None]) -> Callable[[str, Change], None]:
    """Passes each change to several functions, in their order.

    A function that raises is logged and skipped: one object that it cannot handle must not end the watch of
    all others.
    """

    def changed(kind: str, change: Change) -> None:
        for one in hear:
            try:
                one(kind, change)
            except Exception:
                log.exception("a change was not handled", kind=kind, key=str(key_of(change.obj)))

    return changed


def _for_kind(on_change: Callable[[str, Change], None], kind: str) -> OnChange:
    return partial(each(on_change), kind)
