"""Kubernetes seen from outside while it happens: every promise an object made, every pod that ever was."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from paddlewheel.contracts.keys import Key
from paddlewheel.core.tasks import end
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.objects import controller_of, key_of, uid_of
from paddlewheel.kube.ports import PADDLE_JOBS, PODS, SAMPLE_JOBS, SAMPLE_SETS, Change, Resource

ENDS = {
    PADDLE_JOBS.kind: {"Completed", "Failed"},
    SAMPLE_SETS.kind: {"Ready"},
    SAMPLE_JOBS.kind: {"Succeeded", "Failed"},
}
"""Phases in which an object of the run is at rest."""

STARTED_BY = "events.paddlepaddle.org/event"
"""The annotation with which a trigger names its event."""


@dataclass
class Seen:
    """One object as it was last seen. `told` maps ids of its facts to whether the bus has confirmed them.

    `is_started` = a trigger made it.
    """

    kind: str
    key: Key
    phase: str = ""
    is_started: bool = False
    told: dict[str, bool] = field(default_factory=dict)
    is_gone: bool = False

    @property
    def at_rest(self) -> bool:
        """Gone, or at its end with every fact confirmed."""
        return self.is_gone or (self.phase in ENDS[self.kind] and all(self.told.values()))


class World:
    """Own watches over everything that a run makes."""

    def __init__(self, cluster: ApiCluster) -> None:
        self._cluster = cluster
        self._changed = asyncio.Event()
        self.objects: dict[str, Seen] = {}
        """By uid; objects that are gone stay in it."""
        self.pods: dict[tuple[str, str], set[str]] = defaultdict(set)
        """Every pod of a PaddleJob that ever was: (uid of the job, name) -> uids."""
        self.pod_phases: dict[Key, str] = {}
        self.started: dict[str, set[str]] = defaultdict(set)
        """Id of a fact -> uids of the jobs that a trigger made for it."""

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Follow while the block lasts."""
        kinds = (PADDLE_JOBS, SAMPLE_SETS, SAMPLE_JOBS)
        tasks = [asyncio.create_task(self._follow(kind, self._see_object)) for kind in kinds]
        tasks.append(asyncio.create_task(self._follow(PODS, self._see_pod)))
        try:
            yield
        finally:
            await end(*tasks)

    async def until(self, is_so: Callable[[], bool], within: float) -> bool:
        """Wait for a state; False when it did not come about in so many seconds."""
        deadline = time.monotonic() + within
        while not is_so():
            changed = self._changed
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await changed.wait()
            except TimeoutError:
                return is_so()
        return True

    def named(self, kind: str, key: Key) -> Seen | None:
        """The youngest object of that name."""
        found = [seen for seen in self.objects.values() if (seen.kind, seen.key) == (kind, key)]
        return found[-1] if found else None

    async def changed(self) -> None:
        """Wait for the next news."""
        await self._changed.wait()

    def promised(self) -> set[str]:
        """Ids of all facts that any object has announced, whatever became of it."""
        return {fact for seen in self.objects.values() for fact in seen.told}

    async def _follow(self, resource: Resource, see: Callable[[Change], None]) -> None:
        async for change in self._cluster.watch(resource):
            see(change)
            self._changed.set()
            self._changed = asyncio.Event()

    def _see_object(self, change: Change) -> None:
        obj, uid = change.obj, uid_of(change.obj)
        seen = self.objects.setdefault(uid, Seen(obj["kind"], key_of(obj)))
        status: dict[str, Any] = obj.get("status") or {}
        seen.phase, seen.is_gone = str(status.get("phase", "")), change.type == "DELETED"
        if event := (obj["metadata"].get("annotations") or {}).get(STARTED_BY):
            self.started[str(event)].add(uid)
            seen.is_started = True
        for fact in status.get("announcements") or ():
            seen.told[f"{uid}/{fact['fact']}/{fact.get('attempt', 0)}"] = bool(fact.get("announced"))

    def _see_pod(self, change: Change) -> None:
        key, owner = key_of(change.obj), controller_of(change.obj)
        if owner is None or owner["kind"] != PADDLE_JOBS.kind:
            return
        self.pods[str(owner["uid"]), key.name].add(uid_of(change.obj))
        if change.type == "DELETED":
            self.pod_phases.pop(key, None)
        else:
            self.pod_phases[key] = str((change.obj.get("status") or {}).get("phase", ""))
