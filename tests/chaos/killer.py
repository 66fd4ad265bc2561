"""kill -9 of processes at random moments of a run's progress, and starting them again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.services import Service

DOWN = (0.0, 3.0)
"""Seconds a killed process stays away."""


@dataclass(frozen=True)
class Victim:
    """A process that is killed and comes back."""

    kill: Callable[[], Awaitable[object]]
    start: Callable[[], Awaitable[object]]


def server_victim(server: NatsServer) -> Victim:
    """nats-server; it comes back with the same port and store."""
    return Victim(lambda: asyncio.to_thread(server.kill), lambda: asyncio.to_thread(server.start))


def service_victim(service: Service) -> Victim:
    """One replica of a service; it comes back under its name."""
    return Victim(service.kill, service.start)


def draw_moments(chance: random.Random, kills: int, whole: int) -> list[int]:
    """At which numbers of facts out of `whole` somebody is killed; none in the first and last twentieth."""
    return sorted(chance.randint(whole // 20, whole - whole // 20) for _ in range(kills))


def draw_names(chance: random.Random, kills: int, names: Sequence[str], favourite: str) -> list[str]:
    """Who is killed: everybody at least once, the favourite about every third time."""
    rest = [favourite if chance.random() < 0.3 else chance.choice(names) for _ in range(kills - len(names))]
    drawn = [*names, *rest]
    chance.shuffle(drawn)
    return drawn


@dataclass
class Killer:
    """Kills by plan. Kills may overlap; who is away already is killed once it is back.

    Args:
        until: returns once the run has come to so many facts.
    """

    victims: Mapping[str, Victim]
    chance: random.Random
    until: Callable[[int], Awaitable[object]]
    killed: Counter[str] = field(default_factory=Counter)

    async def run(self, moments: Sequence[int], names: Sequence[str]) -> None:
        """Return when all were killed and are back."""
        locks = {name: asyncio.Lock() for name in self.victims}
        async with asyncio.TaskGroup() as group:
            for moment, name in zip(moments, names, strict=True):
                await self.until(moment)
                group.create_task(self._strike(name, locks[name]))

    async def _strike(self, name: str, lock: asyncio.Lock) -> None:
        victim = self.victims[name]
        async with lock:
            await victim.kill()
            self.killed[name] += 1
            try:
                await asyncio.sleep(self.chance.uniform(*DOWN))
            finally:
                await victim.start()
