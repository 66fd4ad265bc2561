"""Pods of a namespace, listed for all sets that ask for them at the same time.

They are not watched: only sets that are being deleted want those of others, which may be thousands.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import PaddlewheelError
from paddlewheel.kube.ports import PODS, Cluster, Objects

PAUSE = 4
"""Seconds of rest for each second that a LIST took: a namespace is listed for a fifth of the time at most."""


@dataclass
class _Namespace:
    """Those who asked up to number `answered` have `answer`; `asked` have asked so far, `waiting` wait."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: int = 0
    waiting: int = 0
    answered: int = 0
    answer: Objects | PaddlewheelError = field(default_factory=list)
    not_before: float = 0.0


class PodLists:
    """One LIST of a namespace at a time; it answers everybody who had asked when it began."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._namespaces: dict[str, _Namespace] = {}

    async def of(self, namespace: str) -> Objects:
        """As they are after the call began. Raises Retry or Permanent."""
        there = self._namespaces.setdefault(namespace, _Namespace())
        there.asked += 1
        there.waiting += 1
        number = there.asked
        try:
            async with there.turn:
                if number > there.answered:
                    await self._list(namespace, there)
                answer = there.answer
        finally:
            there.waiting -= 1
            self._forget_unasked()
        if isinstance(answer, PaddlewheelError):
            raise answer
        return answer

    async def _list(self, namespace: str, there: _Namespace) -> None:
        if (left := there.not_before - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        began, answered = self._clock.monotonic(), there.asked
        try:
            answer: Objects | PaddlewheelError = await self._cluster.list(PODS, namespace)
        except PaddlewheelError as error:
            answer = error
        now = self._clock.monotonic()
        there.answer, there.answered = answer, answered
        there.not_before = now + PAUSE * (now - began)

    def _forget_unasked(self) -> None:
        """Pods are large: nobody keeps them who does not wait for them."""
        now = self._clock.monotonic()
        for name, there in [*self._namespaces.items()]:
            if not there.waiting:
                there.answer = []
                if now >= there.not_before:
                    del self._namespaces[name]
