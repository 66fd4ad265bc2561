"""Secrets, read one by one: only those that objects name, and only as far as they may name them.

They are not watched: the right to watch or list is the right to see all.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataset_controller.domain import names
from dataset_controller.domain.consent import check_consent, check_namespace, not_served
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.secrets import SecretSeen
from dataset_controller.timing import (
    SECRET_IDLE_GRACE_SECONDS,
    SECRET_READ_INTERVAL_SECONDS,
    WRONG_SECRET_READ_INTERVAL_SECONDS,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import SECRETS, Cluster, Object
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.reads import Reads

FORBIDDEN = "Forbidden"


@dataclass
class _Held:
    """`same_since` is when it was read first as it is."""

    obj: Object | None
    same_since: float
    read_at: float
    asked_at: float

    def is_fresh(self, now: float, least: float, most: float) -> bool:
        """It need not be read again yet."""
        return now < self.read_at + min(max(self.read_at - self.same_since, least), most)


class SecretReads:
    """Reads by name, remembered for a while.

    Args:
        home: the namespace of this service, whose Secrets no object of another one may name.
    """

    def __init__(self, cluster: Cluster, reads: Reads, clock: Clock, home: str) -> None:
        self._cluster, self._reads, self._clock, self._home = cluster, reads, clock, home
        self._held: dict[Key, _Held] = {}

    async def named(self, key: Key | None, namespace: str, *, patient: bool) -> SecretSeen:
        """A Secret that an object in `namespace` names; absent when it names none."""
        if key is None:
            return None
        if problem := check_namespace(key, namespace, self._home):
            return problem
        found = await self.read(key, patient=patient)
        if isinstance(found, Trouble):
            return self._problem(key, namespace, found)
        return check_consent(key, namespace, found) or found

    async def read(self, key: Key, *, patient: bool) -> Object | Trouble | None:
        """None when absent. What was read before is used while the API server does not answer."""
        now, held = self._clock.monotonic(), self._held.get(key)
        if held is not None:
            held.asked_at = now
            if held.is_fresh(
                now, *(SECRET_READ_INTERVAL_SECONDS if patient else WRONG_SECRET_READ_INTERVAL_SECONDS)
            ):
                return held.obj
        answer = await self._reads.attempt(names.SECRET, key, lambda: self._get(key))
        if isinstance(answer, Trouble):
            return held.obj if held is not None and answer.reason != FORBIDDEN else answer
        same_since = held.same_since if held is not None and held.obj == answer else now
        self._held[key] = _Held(answer, same_since, now, now)
        self._drop_unused(now)
        return answer

    def wrote(self, obj: Object) -> None:
        """As the API server holds it since our write."""
        now = self._clock.monotonic()
        self._held[key_of(obj)] = _Held(obj, now, now, now)

    def deleting(self, key: Key, uid: str, *, vanishes: bool = False) -> None:
        """The API server accepted our delete of it."""
        self.forget(key)

    def forget(self, key: Key) -> None:
        """It is read again when it is needed."""
        self._held.pop(key, None)

    def forget_namespace(self, namespace: str) -> None:
        """Something was forbidden there: what was read before may be forbidden too by now."""
        for key in [key for key in self._held if key.namespace == namespace]:
            self.forget(key)

    async def _get(self, key: Key) -> Object | None:
        try:
            return await self._cluster.get(SECRETS, key)
        except NotFound:
            return None
        except Permanent:
            self.forget(key)
            raise

    def _drop_unused(self, now: float) -> None:
        unused = [key for key, held in self._held.items() if now > held.asked_at + SECRET_IDLE_GRACE_SECONDS]
        for key in unused:
            del self._held[key]

    def refusal(self, key: Key, found: Object | Trouble | None) -> Problem | None:
        """That an object's own namespace is not served, by what reading a Secret in it gave."""
        if isinstance(found, Trouble) and found.reason == FORBIDDEN:
            return not_served(key, key.namespace, self._home)
        return None

    def _problem(self, key: Key, namespace: str, trouble: Trouble) -> Problem:
        if trouble.reason == FORBIDDEN:
            return not_served(key, namespace, self._home)
        return Problem(Reason.FAILED_GET, f"Secret {key}: {trouble.message}")
