"""What a run that the set started itself amounts to, for the policies that ask."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dataset_controller.domain.actions import Action
from paddlewheel.contracts.generated.cache_v1 import RunState


class Standing(StrEnum):
    """Where a piece of work stands."""

    NOT_NEEDED = "NotNeeded"
    BLOCKED = "Blocked"
    """Wanted, but it cannot begin yet."""
    DUE = "Due"
    """To be begun: its id goes into the status first, its record onto the bus next."""
    RUNNING = "Running"
    DONE = "Done"
    FAILED = "Failed"


@dataclass(frozen=True)
class RunDecision:
    """One decision about one own run."""

    standing: Standing
    run_id: str = ""
    actions: tuple[Action, ...] = ()
    state: RunState | None = None
    wake_after: float | None = None

    @property
    def is_over(self) -> bool:
        """Nothing has to be waited for."""
        return self.standing in (Standing.NOT_NEEDED, Standing.DONE)

    def why(self, work: str) -> tuple[str, str]:
        """Reason and message of a failed run."""
        state = self.state or RunState()
        return state.reason or f"ErrorDo{work}", state.message or "the runtime gave no message"
