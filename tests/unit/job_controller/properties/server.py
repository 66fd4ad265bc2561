"""An API server in memory: versions, finalizers, grace periods and the garbage collection of children."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from job_controller.core import names
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import parse_stamp, seconds_stamp
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent
from paddlewheel.kube.objects import controller_uid, key_of, uid_of, version_of
from paddlewheel.kube.ports import Change, Object
from paddlewheel.testkit.memory_cluster.merge import merge

KEY, RIVAL = Key("default", "demo"), Key("default", "rival")
"""The keys of the job, and of another job that some histories have."""
KEYS = (KEY, RIVAL)
KINDS = (names.JOB, names.POD, names.SERVICE_KIND, names.CONFIG_MAP)
POD_GRACE_SECONDS = 30
"""The time between the deletion of a pod and its end, unless the deletion has another."""
_ENDED = ("Failed", "Succeeded")

Law = Callable[[str, Object | None, Object | None], None]
"""Looks at every write: the kind, the object before and after it, None when there is none."""


class ModelClock:
    """Wall clock and monotonic clock, which need not agree."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.wall = datetime.fromisoformat("2026-01-01T00:00:00Z")

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")

    def advance(self, seconds: float) -> None:
        self.elapsed += seconds
        self.wall += timedelta(seconds=seconds)

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock only, as an administrator or a time service does."""
        self.wall += timedelta(seconds=seconds)


class Server:
    """Objects by kind, and the watch events of each kind that were not yet delivered.

    Args:
        law: called after each write.
    """

    def __init__(self, clock: ModelClock, law: Law) -> None:
        self.objects: dict[str, dict[Key, Object]] = {kind: {} for kind in KINDS}
        self.events: dict[str, deque[Change]] = {kind: deque() for kind in KINDS}
        self.version = 0
        self.quota: int | None = None
        """Pods that a ResourceQuota allows, None for any number."""
        self._clock = clock
        self._law = law

    def get(self, kind: str, key: Key) -> Object:
        try:
            return self.objects[kind][key]
        except KeyError:
            raise NotFound(f"{kind} {key}") from None

    def create(self, kind: str, manifest: Mapping[str, Any]) -> Object:
        if key_of(manifest) in self.objects[kind]:
            raise AlreadyExists(f"{kind} {key_of(manifest)}")
        if kind == names.POD and self.quota is not None and len(self.objects[kind]) >= self.quota:
            raise Permanent("Forbidden", f"exceeded quota: pods, used: {self.quota}, limited: {self.quota}")
        stamp = seconds_stamp(self._clock.now())
        given = {"uid": f"uid-{self.version + 1}", "creationTimestamp": stamp, "generation": 1}
        status = {"status": {"phase": "Pending"}} if kind == names.POD else {}
        return self._store(kind, None, {**manifest, **status, "metadata": {**manifest["metadata"], **given}})

    def patch(
        self, kind: str, key: Key, patch: Mapping[str, Any], uid: str = "", version: str = ""
    ) -> Object:
        """A merge patch. Raises NotFound, also for another uid, and Conflict for another version."""
        old = self.get(kind, key)
        if uid and uid_of(old) != uid:
            raise NotFound(f"{kind} {key} {uid}")
        if version and version_of(old) != version:
            raise Conflict(f"{kind} {key} has been modified")
        new: Object = merge(old, patch)
        if new == old:
            return old
        if new.get("spec") != old.get("spec"):
            new["metadata"] = {**new["metadata"], "generation": old["metadata"]["generation"] + 1}
        stored = self._store(kind, old, new)
        self._end(kind, stored)
        return stored

    def delete(self, kind: str, key: Key, uid: str = "", grace: int = POD_GRACE_SECONDS) -> None:
        """An object that is gone, or that has another uid, is not an error."""
        old = self.objects[kind].get(key)
        if old is None or (uid and uid_of(old) != uid):
            return
        seconds = grace if kind == names.POD and _runs(old) else 0
        if (
            "deletionTimestamp" in old["metadata"]
            and seconds >= old["metadata"]["deletionGracePeriodSeconds"]
        ):
            return
        ends = seconds_stamp(self._clock.now() + timedelta(seconds=seconds))
        going = {"deletionTimestamp": ends, "deletionGracePeriodSeconds": seconds}
        if seconds or old["metadata"].get("finalizers"):
            old = self._store(kind, old, {**old, "metadata": {**old["metadata"], **going}})
            return
        self._remove(kind, old)

    def confirm(self, key: Key) -> None:
        """The kubelet reports that the containers of a deleted pod have ended."""
        pod = self.get(names.POD, key)
        meta = pod["metadata"]
        ends = parse_stamp(meta["deletionTimestamp"])
        assert ends is not None
        asked = seconds_stamp(ends - timedelta(seconds=meta["deletionGracePeriodSeconds"]))
        ended = {"deletionTimestamp": asked, "deletionGracePeriodSeconds": 0}
        self._end(names.POD, self._store(names.POD, pod, {**pod, "metadata": {**meta, **ended}}))

    def children(self, kind: str, uid: str) -> list[Object]:
        """The objects that the object of that uid controls."""
        return [obj for obj in self.objects[kind].values() if controller_uid(obj) == [uid]]

    def _store(self, kind: str, old: Object | None, new: Object) -> Object:
        self.version += 1
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        self.objects[kind][key_of(new)] = new
        self.events[kind].append(Change("MODIFIED" if old else "ADDED", new))
        self._law(kind, old, new)
        return new

    def _end(self, kind: str, obj: Object) -> None:
        """A deleted object goes with its last finalizer, a pod not before its grace period has ended."""
        meta = obj["metadata"]
        if (
            "deletionTimestamp" in meta
            and not meta.get("finalizers")
            and not meta["deletionGracePeriodSeconds"]
        ):
            self._remove(kind, obj)

    def _remove(self, kind: str, obj: Object) -> None:
        self.version += 1
        del self.objects[kind][key_of(obj)]
        gone = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self.events[kind].append(Change("DELETED", gone))
        self._law(kind, obj, None)
        for child_kind in KINDS:
            for child in self.children(child_kind, uid_of(obj)):
                self.delete(child_kind, key_of(child))


def _runs(pod: Object) -> bool:
    """It has a node, whose kubelet has to confirm its end."""
    has_node = bool(pod["spec"].get("nodeName"))
    return has_node and pod["status"].get("phase") not in _ENDED
