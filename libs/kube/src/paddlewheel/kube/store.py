"""A local copy of one resource, updated by its watch and by the responses to the writes of this process.

A watch is always a little late. Without its own writes in the copy, a controller would create pods twice, and
repeat a status write, when another event arrives before the watch has reported the write.
The state with the higher resourceVersion, compared as an integer, is newer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.kube.indexed import Index, IndexedObjects, Keys
from paddlewheel.kube.objects import key_of, uid_of, version_of
from paddlewheel.kube.ports import Change, Object, Objects

CONFIRM_TIMEOUT_SECONDS = 30.0
"""Time until the watch must report an own write. After it, the store shows the state of the watch again.

This is longer than a call can take, so that a deletion is still remembered when the response to an earlier
write arrives.
"""
TOMBSTONES = 8192
"""Maximum number of remembered deletions. At worst, the object of a forgotten deletion reappears for
CONFIRM_TIMEOUT_SECONDS."""


@dataclass
class _Unconfirmed:
    """An own write to one object that the watch has not reported yet.

    Args:
        reported: the state that the watch last reported. None means no object.
        deleting: uid of the object whose deletion the API server has accepted.
        hidden: that object, while the store does not show it.
    """

    reported: Object | None
    until: float
    deleting: str = ""
    hidden: Object | None = None


@dataclass(frozen=True)
class _Tombstone:
    uid: str
    version: int
    until: float


class WatchedStore:
    """A copy that never goes back to an older state.

    The only exception is an own write that the watch does not report for CONFIRM_TIMEOUT_SECONDS.

    Args:
        indexes: index functions by name. Each returns the values under which `by_index` finds an object.
    """

    def __init__(self, clock: Clock, indexes: Mapping[str, Index] | None = None) -> None:
        self._clock = clock
        self._objects = IndexedObjects(indexes)
        self._unconfirmed: OrderedDict[Key, _Unconfirmed] = OrderedDict()
        self._tombstones: OrderedDict[Key, _Tombstone] = OrderedDict()
        self._own_versions: dict[Key, list[int]] = {}

    def get(self, key: Key) -> Object | None:
        """The newest known state. It is shared: do not change it."""
        self._drop_expired()
        return self._objects.get(key)

    def list(self, namespace: str = "") -> Objects:
        """All objects, or all objects of one namespace, in no particular order."""
        self._drop_expired()
        return self._objects.list(namespace)

    def by_index(self, index: str, value: str) -> Objects:
        """Objects for which the named index function returned `value`, in no particular order."""
        self._drop_expired()
        return self._objects.by_index(index, value)

    def count_by_index(self, index: str, value: str) -> int:
        """The number of objects that `by_index` returns. Takes constant time."""
        self._drop_expired()
        return self._objects.count_by_index(index, value)

    def keys(self) -> Keys:
        """All keys, for the resync of a Controller."""
        self._drop_expired()
        return self._objects.keys()

    def wrote(self, obj: Object) -> None:
        """Apply the object from the response to an own write."""
        self.read(obj)
        key = key_of(obj)
        stored = self._objects.get(key)
        if key in self._unconfirmed and stored is not None and version_of(stored) == version_of(obj):
            self._mark_own(obj)

    def read(self, obj: Object) -> None:
        """Apply the object from the response to a GET."""
        self._drop_expired()
        key, uid = key_of(obj), uid_of(obj)
        if _is_gone(obj):
            return self.deleting(key, uid, vanishes=True)
        if self._is_outdated(key, obj) or self._is_hidden(key, obj):
            return None
        pending = self._start_waiting(key)
        pending.hidden = None
        if pending.deleting != uid:
            pending.deleting = ""
        self._objects.put(key, self._marked(pending, obj))
        return None

    def deleting(self, key: Key, uid: str, *, vanishes: bool = False) -> None:
        """Record that the API server accepted our deletion of this object.

        Args:
            vanishes: the object has no grace period and no finalizers (ConfigMaps), so it is removed at once.
                Other objects are shown with a deletionTimestamp until the watch reports them.
        """
        self._drop_expired()
        stored = self._objects.get(key)
        if stored is None or uid_of(stored) != uid or (_is_terminating(stored) and not vanishes):
            return
        pending = self._start_waiting(key)
        pending.deleting, pending.hidden = uid, stored if vanishes else None
        if vanishes:
            self._objects.remove(key)
        else:
            self._objects.put(key, self._marked(pending, stored))

    def is_own(self, change: Change) -> bool:
        """True when this change is our own last write and includes no change by another client.

        Call this from `on_change`. It also returns False for a change found by listing, which may include
        other changes, and for a write outside `Informer.write` whose event arrived before the response.
        """
        return (
            change.type != "DELETED"
            and not change.listed
            and _version(change.obj) in self._own_versions.get(key_of(change.obj), ())
        )

    def is_reported(self, key: Key) -> bool:
        """True when the watch has reported all our writes to the object.

        The watch reports the changes of one resource in order. So it has also reported all earlier writes to
        other objects.
        """
        self._drop_expired()
        return key not in self._unconfirmed

    def apply(self, change: Change) -> bool:
        """Apply a change from the watch. Returns False for a stale change, which must not be reported."""
        self._drop_expired()
        key = key_of(change.obj)
        if change.type == "DELETED":
            self._bury(key, change.obj)
        elif self._is_buried(key, change.obj):
            return False
        pending = self._unconfirmed.get(key)
        if self._is_stale(change, self._newest(key)):
            return self._note_stale(key, change, pending)
        if pending and self._precedes_deletion(change, pending):
            return self._update_deleting(key, change, pending)
        self._unconfirmed.pop(key, None)
        self._confirm_own(key, change)
        if change.type == "DELETED":
            self._objects.remove(key)
        else:
            self._objects.put(key, change.obj)
        return True

    def clear(self) -> Objects:
        """Remove all objects, and return them."""
        shown = self.list()
        for key in self.keys():
            self._objects.remove(key)
        self._unconfirmed.clear()
        self._tombstones.clear()
        self._own_versions.clear()
        return shown

    def _mark_own(self, obj: Object) -> None:
        self._own_versions.setdefault(key_of(obj), []).append(_version(obj))

    def _is_outdated(self, key: Key, obj: Object) -> bool:
        """True when the store, or a deletion that the watch has reported, is newer than this response."""
        newest = self._newest(key)
        return self._is_buried(key, obj) or (newest is not None and _version(newest) >= _version(obj))

    def _newest(self, key: Key) -> Object | None:
        """The newest state of the object, even while it is hidden."""
        pending = self._unconfirmed.get(key)
        return self._objects.get(key) or (pending.hidden if pending else None)

    def _is_hidden(self, key: Key, obj: Object) -> bool:
        """True when our deletion of this object was accepted and the store hides it."""
        pending = self._unconfirmed.get(key)
        is_hidden = pending is not None and pending.hidden is not None and pending.deleting == uid_of(obj)
        return is_hidden and not _is_terminating(obj)

    def _start_waiting(self, key: Key) -> _Unconfirmed:
        """The entry of the key, with a new deadline and therefore at the end of the queue."""
        old = self._unconfirmed.pop(key, None)
        pending = old or _Unconfirmed(self._objects.get(key), 0.0)
        pending.until = self._clock.monotonic() + CONFIRM_TIMEOUT_SECONDS
        self._unconfirmed[key] = pending
        return pending

    def _marked(self, pending: _Unconfirmed, obj: Object) -> Object:
        """The object, with a deletionTimestamp if its deletion was accepted."""
        if pending.deleting != uid_of(obj) or _is_terminating(obj):
            return obj
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": now}}

    def _bury(self, key: Key, obj: Object) -> None:
        old = self._tombstones.get(key)
        if old and old.version > _version(obj):
            return
        self._tombstones.pop(key, None)
        self._tombstones[key] = _Tombstone(
            uid_of(obj), _version(obj), self._clock.monotonic() + CONFIRM_TIMEOUT_SECONDS
        )
        if len(self._tombstones) > TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _is_buried(self, key: Key, obj: Object) -> bool:
        tombstone = self._tombstones.get(key)
        if tombstone is None:
            return False
        version = _version(obj)
        # A relist reports the deletion of an object with the version of the new object of that name.
        is_same = tombstone.uid == uid_of(obj)
        return version < tombstone.version or (is_same and version == tombstone.version)

    def _is_stale(self, change: Change, newest: Object | None) -> bool:
        if newest is None:
            return False
        version = _version(change.obj)
        is_successor = change.type == "DELETED" and uid_of(newest) != uid_of(change.obj)
        return version < _version(newest) or (is_successor and version == _version(newest))

    def _note_stale(self, key: Key, change: Change, pending: _Unconfirmed | None) -> bool:
        version, newest = _version(change.obj), self._newest(key)
        if pending and (pending.reported is None or version >= _version(pending.reported)):
            pending.reported = None if change.type == "DELETED" else change.obj
        if change.type == "DELETED" and newest is not None and uid_of(newest) != uid_of(change.obj):
            # Report the deletion: the owner of that object waits for it. Our object reuses its name.
            return True
        if change.listed or version not in self._own_versions.get(key, ()):
            # Our write includes a change by another client, so its event must not count as our own.
            self._own_versions.pop(key, None)
        return False

    def _precedes_deletion(self, change: Change, pending: _Unconfirmed) -> bool:
        obj = change.obj
        return change.type != "DELETED" and pending.deleting == uid_of(obj) and not _is_terminating(obj)

    def _update_deleting(self, key: Key, change: Change, pending: _Unconfirmed) -> bool:
        """Apply an update from before our deletion. A hidden object stays hidden, others are terminating."""
        pending.reported = change.obj
        self._own_versions.pop(key, None)
        if pending.hidden is not None:
            pending.hidden = change.obj
            return False
        self._objects.put(key, self._marked(pending, change.obj))
        return True

    def _confirm_own(self, key: Key, change: Change) -> None:
        """Forget our own versions, except the one that the watch has just reported."""
        version = _version(change.obj)
        if version in self._own_versions.pop(key, ()) and not change.listed and change.type != "DELETED":
            self._own_versions[key] = [version]

    def _drop_expired(self) -> None:
        """Drop own writes and deletions whose time has passed. Both queues are ordered by time."""
        if not self._unconfirmed and not self._tombstones:
            return
        now = self._clock.monotonic()
        while self._unconfirmed and next(iter(self._unconfirmed.values())).until <= now:
            key, pending = self._unconfirmed.popitem(last=False)
            self._own_versions.pop(key, None)
            if pending.reported is None:
                self._objects.remove(key)
            else:
                self._objects.put(key, pending.reported)
        while self._tombstones and next(iter(self._tombstones.values())).until <= now:
            self._tombstones.popitem(last=False)


def _version(obj: Object) -> int:
    return int(version_of(obj) or 0)


def _is_terminating(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def _is_gone(obj: Object) -> bool:
    """True when the API server has removed the object: it has no finalizer and no grace period."""
    meta = obj["metadata"]
    return _is_terminating(obj) and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
