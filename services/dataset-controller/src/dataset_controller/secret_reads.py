"""Secrets, read one by one: only those that objects name, and only as far as they may name them.

They are not watched: the right to watch or list is the right to see all.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataset_controller.domain import names
from dataset_controller.domain.consent import check_consent, check_namespace, not_served
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.secrets import SecretSeen
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.kube.ports import SECRETS, Cluster, Object
from paddlewheel.operator.domain.plan import Trouble
from paddlewheel.operator.reads import Reads

FRESH_SECONDS = 30.0
"""Age at which a Secret is read again for an object that is well."""
IMPATIENT_SECONDS = 1.0
"""The same for an object that waits for its author to correct something."""
KEPT_SECONDS = 900.0
"""Time after which a Secret that nobody asks for is forgotten."""
FORBIDDEN = "Forbidden"


@dataclass
class _Held:
    obj: Object | None
    read_at: float
    asked_at: float


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
            return self._problem(key, found)
        return check_consent(key, namespace, found) or found

    async def read(self, key: Key, *, patient: bool) -> Object | Trouble | None:
        """None when absent. What was read before is used while the API server does not answer."""
        now, held = self._clock.monotonic(), self._held.get(key)
        if held is not None:
            held.asked_at = now
            if now < held.read_at + (FRESH_SECONDS if patient else IMPATIENT_SECONDS):
                return held.obj
        answer = await self._reads.attempt(names.SECRET, key, lambda: self._get(key))
        if isinstance(answer, Trouble):
            return held.obj if held is not None and answer.reason != FORBIDDEN else answer
        self._held[key] = _Held(answer, now, now)
        self._drop_unused(now)
        return answer

    def forget(self, key: Key) -> None:
        """It was written, and is read again when it is needed."""
        self._held.pop(key, None)

    async def _get(self, key: Key) -> Object | None:
        try:
            return await self._cluster.get(SECRETS, key)
        except NotFound:
            return None
        except Permanent:
            self.forget(key)
            raise

    def _drop_unused(self, now: float) -> None:
        unused = [key for key, held in self._held.items() if now > held.asked_at + KEPT_SECONDS]
        for key in unused:
            del self._held[key]

    def _problem(self, key: Key, trouble: Trouble) -> Problem:
        if trouble.reason == FORBIDDEN:
            return not_served(key, self._home)
        return Problem(Reason.FAILED_GET, f"Secret {key}: {trouble.message}")
