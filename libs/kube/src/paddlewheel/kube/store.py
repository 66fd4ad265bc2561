"""A local copy of one resource, fed by its watch and by the answers to this process's own writes.

A watch is always a little late. Without its own writes, a controller would create pods once more at every
event that arrives in the meantime, and write a status again that it has just written.
Which of two states is newer is decided by resourceVersion, compared as an integer.
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

PATIENCE = 30.0
"""Seconds an own write waits for its watch event before the watch is believed again.

Longer than a call may take, so that a deletion is remembered when the answer to an earlier write arrives.
"""
TOMBSTONES = 8192
"""Deletions remembered at most; a forgotten one costs at worst a ghost for PATIENCE."""


@dataclass
class _Unconfirmed:
    """An own write to one object that the watch has not reported yet.

    `reported` is what the watch last reported (None: no object), `deleting` the uid of the object whose
    deletion the API server has accepted, `hidden` that object while it is not shown any more.
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
    """Never shows an older state than before, except when an own write goes unconfirmed for PATIENCE.

    Args:
        indexes: name -> the values under which an object is found by `by_index`.
    """

    def __init__(self, clock: Clock, indexes: Mapping[str, Index] | None = None) -> None:
        self._clock = clock
        self._objects = IndexedObjects(indexes)
        self._unconfirmed: OrderedDict[Key, _Unconfirmed] = OrderedDict()
        self._tombstones: OrderedDict[Key, _Tombstone] = OrderedDict()
        self._own_versions: dict[Key, list[int]] = {}

    def get(self, key: Key) -> Object | None:
        """The newest known state. Shared: do not change it."""
        self._drop_expired()
        return self._objects.get(key)

    def list(self, namespace: str = "") -> Objects:
        """All objects, or those of one namespace, in no particular order."""
        self._drop_expired()
        return self._objects.list(namespace)

    def by_index(self, index: str, value: str) -> Objects:
        """Objects for which the named index function returned `value`, in no particular order."""
        self._drop_expired()
        return self._objects.by_index(index, value)

    def count_by_index(self, index: str, value: str) -> int:
        """How many objects `by_index` would return, in constant time."""
        self._drop_expired()
        return self._objects.count_by_index(index, value)

    def keys(self) -> Keys:
        """All keys: what a Controller resyncs over."""
        self._drop_expired()
        return self._objects.keys()

    def wrote(self, obj: Object) -> None:
        """The API server answered one of our writes with this object."""
        self.read(obj)
        key = key_of(obj)
        stored = self._objects.get(key)
        if key in self._unconfirmed and stored is not None and version_of(stored) == version_of(obj):
            self._mark_own(obj)

    def read(self, obj: Object) -> None:
        """The API server answered a GET with this object."""
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
        """The API server accepted our delete of this very object.

        Args:
            vanishes: the object is removed at once, having no grace period and no finalizers (ConfigMaps);
                others are shown with a deletionTimestamp until the watch reports on them.
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
        """True when this change is our own last write and hides no change by others.

        To be called from `on_change`. False as well for changes found by listing, which may hide others, and
        when the event arrived before the answer to a write that was not awaited by `Informer.write`.
        """
        return (
            change.type != "DELETED"
            and not change.listed
            and _version(change.obj) in self._own_versions.get(key_of(change.obj), ())
        )

    def is_reported(self, key: Key) -> bool:
        """The watch has reported every write of ours to the object, and so all writes to others before them:
        it reports the changes of one resource in their order."""
        self._drop_expired()
        return key not in self._unconfirmed

    def apply(self, change: Change) -> bool:
        """Apply what the watch reports; False when it was stale and must not be passed on."""
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
        """Forget everything; returns what was shown."""
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
        """The store, or a deletion that the watch has reported, is newer than this answer."""
        newest = self._newest(key)
        return self._is_buried(key, obj) or (newest is not None and _version(newest) >= _version(obj))

    def _newest(self, key: Key) -> Object | None:
        """What is shown, or hidden as vanishing."""
        pending = self._unconfirmed.get(key)
        return self._objects.get(key) or (pending.hidden if pending else None)

    def _is_hidden(self, key: Key, obj: Object) -> bool:
        """Our delete of this very object has been accepted, and it vanishes."""
        pending = self._unconfirmed.get(key)
        is_hidden = pending is not None and pending.hidden is not None and pending.deleting == uid_of(obj)
        return is_hidden and not _is_terminating(obj)

    def _start_waiting(self, key: Key) -> _Unconfirmed:
        """The entry of the key, moved to the end of the queue with a new deadline."""
        old = self._unconfirmed.pop(key, None)
        pending = old or _Unconfirmed(self._objects.get(key), 0.0)
        pending.until = self._clock.monotonic() + PATIENCE
        self._unconfirmed[key] = pending
        return pending

    def _marked(self, pending: _Unconfirmed, obj: Object) -> Object:
        """With a deletionTimestamp if this object's deletion has been accepted."""
        if pending.deleting != uid_of(obj) or _is_terminating(obj):
            return obj
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": now}}

    def _bury(self, key: Key, obj: Object) -> None:
        old = self._tombstones.get(key)
        if old and old.version > _version(obj):
            return
        self._tombstones.pop(key, None)
        self._tombstones[key] = _Tombstone(uid_of(obj), _version(obj), self._clock.monotonic() + PATIENCE)
        if len(self._tombstones) > TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _is_buried(self, key: Key, obj: Object) -> bool:
        tombstone = self._tombstones.get(key)
        if tombstone is None:
            return False
        version = _version(obj)
        # A relist reports the deletion of an object with the version of its successor.
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
            # The end of the object whose name ours has taken is news to its owner.
            return True
        if change.listed or version not in self._own_versions.get(key, ()):
            # Somebody else's change is part of our own write: its event must not pass as ours alone.
            self._own_versions.pop(key, None)
        return False

    def _precedes_deletion(self, change: Change, pending: _Unconfirmed) -> bool:
        obj = change.obj
        return change.type != "DELETED" and pending.deleting == uid_of(obj) and not _is_terminating(obj)

    def _update_deleting(self, key: Key, change: Change, pending: _Unconfirmed) -> bool:
        """An update from before our delete: what vanishes stays hidden, the rest is shown as terminating."""
        pending.reported = change.obj
        self._own_versions.pop(key, None)
        if pending.hidden is not None:
            pending.hidden = change.obj
            return False
        self._objects.put(key, self._marked(pending, change.obj))
        return True

    def _confirm_own(self, key: Key, change: Change) -> None:
        """Of our versions only the one that the watch has just reported is remembered."""
        version = _version(change.obj)
        if version in self._own_versions.pop(key, ()) and not change.listed and change.type != "DELETED":
            self._own_versions[key] = [version]

    def _drop_expired(self) -> None:
        """Give up on own writes and forget deletions whose time is over; both queues are in order of time."""
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
    """With the last finalizer the API server removes the object, unless a grace period is running."""
    meta = obj["metadata"]
    return _is_terminating(obj) and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
