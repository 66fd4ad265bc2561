"""The form of every plan: what to do, what the status shall be, what to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from dataset_controller.domain.actions import Action, Notice, Patch
from dataset_controller.domain.journal import Journal


class Status(Protocol):
    """A kind's status."""

    @property
    def journal(self) -> Journal: ...

    def with_journal(self, journal: Journal) -> Self: ...

    def render(self) -> dict[str, Any]: ...


S = TypeVar("S", bound=Status)


@dataclass(frozen=True)
class Plan(Generic[S]):
    """What to do about one object.

    Args:
        status: as it shall be; None leaves it as it is.
        release: the last write of a deletion, done once bus and facts are settled.
        release_anyway: the bus has been waited for long enough.
        requeue_after: seconds, None when only a change matters.
    """

    actions: tuple[Action, ...] = ()
    status: S | None = None
    notices: tuple[Notice, ...] = ()
    release: Patch | None = None
    release_anyway: bool = False
    requeue_after: float | None = None
