"""The master role of one run: claimed and kept by writing the run's state, lost when another writes it."""

from __future__ import annotations

from datetime import datetime

from cache_runtime.domain.model import RunRecords
from cache_runtime.domain.runs import Claim, claimed
from cache_runtime.records import RunStore
from paddlewheel.contracts.generated.cache_v1 import ChunkLimits, RunState
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound


class RoleLostError(Exception):
    """Another process holds the master role now, whatever its pod's name."""


class Role:
    """The state of a run as its master has last written it, or is about to.

    Args:
        pod: of the agent that claims the role.
        limits: of a run that nobody has claimed before.
    """

    def __init__(self, run_id: str, pod: str, store: RunStore, clock: Clock, limits: ChunkLimits) -> None:
        self._pod, self._store, self._clock, self._limits = pod, store, clock, limits
        self._revision = 0
        self._written_at = 0.0
        self.state = RunState(run_id=run_id)

    @property
    def now(self) -> datetime:
        return self._clock.now()

    @property
    def unwritten_for(self) -> float:
        """Seconds since the last write was begun: others may have seen it long before it was confirmed."""
        return self._clock.monotonic() - self._written_at

    async def claim(self, claim: Claim, run: RunRecords) -> bool:
        """Whether the role was free. Raises Retry."""
        began_at = self._clock.monotonic()
        self.state = claimed(run.state, run.run_id, self._pod, self.now, self._limits)
        try:
            if claim is Claim.CREATE:
                self._revision = await self._store.create_state(self.state)
            else:
                self._revision = await self._store.update_state(self.state, run.state_revision)
        except (AlreadyExists, Conflict):
            return False
        self._written_at = began_at
        return True

    async def write(self) -> None:
        """Compare-and-set. Raises Retry, or RoleLostError when another agent has written."""
        began_at = self._clock.monotonic()
        try:
            self._revision = await self._store.update_state(self.state, self._revision)
        except Conflict:
            await self._adopt_own_write()
            self._revision = await self._update_again()
        self._written_at = began_at

    async def _adopt_own_write(self) -> None:
        """A write whose response was lost is still ours."""
        try:
            found, revision = await self._store.state(self.state.run_id)
        except NotFound as error:
            raise RoleLostError from error
        if (found.master, found.term) != (self.state.master, self.state.term):
            raise RoleLostError
        self._revision = revision

    async def _update_again(self) -> int:
        try:
            return await self._store.update_state(self.state, self._revision)
        except Conflict as error:
            raise RoleLostError from error
