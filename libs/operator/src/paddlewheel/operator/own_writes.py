"""What this process has written and its caches have not shown yet.

A watch is always a little late. Without this, the pods just created would be created again at every event
that comes in the meantime, and a status just written would be written again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.kube.objects import key_of, uid_of, version_of
from paddlewheel.kube.ports import Change, Object

PATIENCE = 30.0
"""Seconds after which the cache is believed again, should the awaited notice never come."""


@dataclass(frozen=True)
class _Written:
    obj: Object
    until: float


@dataclass(frozen=True)
class _Deleted:
    uid: str
    until: float


class OwnWrites:
    """Own writes to one resource, laid over its store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[Key, _Written] = {}
        self._deleted: dict[Key, _Deleted] = {}

    def wrote(self, obj: Object) -> None:
        """The API server answered with this object."""
        self._written[key_of(obj)] = _Written(obj, self._clock.monotonic() + PATIENCE)

    def deleted(self, key: Key, uid: str) -> None:
        """The API server took the order to delete it."""
        self._deleted[key] = _Deleted(uid, self._clock.monotonic() + PATIENCE)

    def saw(self, change: Change) -> None:
        """The cache has taken in a change: what it now knows itself is forgotten here."""
        key, uid = key_of(change.obj), uid_of(change.obj)
        ours, gone = self._written.get(key), self._deleted.get(key)
        if ours and (change.type == "DELETED" or not _is_newer(ours.obj, change.obj)):
            del self._written[key]
        is_going = change.type == "DELETED" or "deletionTimestamp" in change.obj["metadata"]
        if gone and (is_going or gone.uid != uid):
            del self._deleted[key]

    def newest(self, key: Key, cached: Object | None) -> Object | None:
        """The later of what the cache holds and what was written."""
        ours = self._written.get(key)
        if ours is None or self._clock.monotonic() > ours.until:
            self._written.pop(key, None)
            return cached
        return ours.obj if cached is None or _is_newer(ours.obj, cached) else cached

    def lay_over(self, owner_uid: str, cached: Iterable[Object]) -> list[Object]:
        """The owner's children: those of the cache, and those written since."""
        found = {key_of(obj): obj for obj in cached}
        written = (k for k, w in self._written.items() if _owner_uid(w.obj) == owner_uid)
        merged = {key: self.newest(key, found.get(key)) for key in [*found, *written]}
        return [obj for obj in merged.values() if obj is not None]

    def is_deleted(self, obj: Object) -> bool:
        """True when this very object was ordered to be deleted."""
        gone = self._deleted.get(key_of(obj))
        return gone is not None and gone.uid == uid_of(obj) and self._clock.monotonic() <= gone.until


def _is_newer(one: Object, other: Object) -> bool:
    return int(version_of(one) or 0) > int(version_of(other) or 0)


def _owner_uid(obj: Object) -> str:
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(o.get("uid", "")) for o in owners if o.get("controller")), "")
