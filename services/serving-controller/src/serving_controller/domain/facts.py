"""The facts of a PaddleService: one table. A new fact is a message in `protos/` and a row here.

Most facts can become true again, also while the bus is unreachable. So every fact has a number. A plan
declares a fact with the parts of its message; the reconciler records the message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paddlewheel.contracts.announcements import Announcement, last_attempt, later, outstanding
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds.paddleservice import (
    PaddleServiceStatus,
    ServingAnnouncement,
    SideStatus,
    VerdictStatus,
)
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.serving_v1 import (
    CanaryPromoted,
    CanaryRolledBack,
    CanaryStarted,
    CanaryStepped,
    RevisionReady,
    ServiceDegraded,
    ServiceDeleted,
    ServiceReady,
    Side,
    Statistics,
)
from paddlewheel.operator.domain.facts import Fact, FactTable, bounded

_NOTHING = ServingAnnouncement("", 0, "")


@dataclass(frozen=True)
class Case:
    """The parts of a message, and the URL of the status that records it."""

    url: str = ""
    entry: ServingAnnouncement = _NOTHING


class _Table(FactTable[Case]):
    def render(self, announcement: Announcement, case: Case | None, ref: ObjectRef) -> WireModel | None:
        if case is not None and isinstance(announcement, ServingAnnouncement):
            case = Case(case.url, announcement)
        return super().render(announcement, case, ref)


def _side(side: SideStatus) -> Side:
    return Side(requests=side.requests, errors=side.errors, p95_seconds=side.p95, metrics=side.metrics)


def _statistics(verdict: VerdictStatus | None) -> Statistics | None:
    if verdict is None:
        return None
    return Statistics(stable=_side(verdict.stable), canary=_side(verdict.candidate), p_value=verdict.p_value)


def _stepped(case: Case, ref: ObjectRef) -> CanaryStepped:
    entry = case.entry
    figures = _statistics(entry.verdict)
    return CanaryStepped(
        service=ref, revision=entry.revision, percent=entry.percent, step=entry.step, statistics=figures
    )


def _promoted(case: Case, ref: ObjectRef) -> CanaryPromoted:
    entry = case.entry
    figures = _statistics(entry.verdict)
    return CanaryPromoted(service=ref, revision=entry.revision, reason=entry.reason, statistics=figures)


def _rolled_back(case: Case, ref: ObjectRef) -> CanaryRolledBack:
    entry = case.entry
    return CanaryRolledBack(
        service=ref,
        revision=entry.revision,
        reason=entry.reason,
        message=entry.message,
        statistics=_statistics(entry.verdict),
    )


def _degraded(case: Case, ref: ObjectRef) -> ServiceDegraded:
    entry = case.entry
    return ServiceDegraded(service=ref, revision=entry.revision, reason=entry.reason, message=entry.message)


def _is(name: str) -> Callable[[Case], bool]:
    return lambda case: case.entry.fact == name


FACTS = _Table(
    Fact(
        RevisionReady, _is("RevisionReady"), lambda c, r: RevisionReady(service=r, revision=c.entry.revision)
    ),
    Fact(
        ServiceReady,
        _is("ServiceReady"),
        lambda c, r: ServiceReady(service=r, revision=c.entry.revision, url=c.url),
    ),
    Fact(ServiceDegraded, _is("ServiceDegraded"), _degraded),
    Fact(
        CanaryStarted,
        _is("CanaryStarted"),
        lambda c, r: CanaryStarted(service=r, revision=c.entry.revision, percent=c.entry.percent),
    ),
    Fact(CanaryStepped, _is("CanaryStepped"), _stepped),
    Fact(CanaryPromoted, _is("CanaryPromoted"), _promoted),
    Fact(CanaryRolledBack, _is("CanaryRolledBack"), _rolled_back),
    Fact(ServiceDeleted, _is("ServiceDeleted"), lambda _, r: ServiceDeleted(service=r)),
)


def declare(
    status: PaddleServiceStatus,
    fact: str,
    at: str,
    *,
    revision: str = "",
    percent: int = 0,
    step: int = 0,
    reason: str = "",
    message: str = "",
    verdict: VerdictStatus | None = None,
) -> PaddleServiceStatus:
    """Add an occurrence of the fact, under its next number. `at` is RFC 3339 UTC."""
    facts = outstanding(status.announcements)
    number = last_attempt(facts, fact) + 1
    new = ServingAnnouncement(
        fact,
        number,
        later(facts, at),
        revision=revision,
        percent=percent,
        step=step,
        reason=reason,
        message=message,
        verdict=verdict,
    )
    return status.model_copy(update={"announcements": bounded((*facts, new))})


def is_declared(status: PaddleServiceStatus, fact: str) -> bool:
    """It became true before."""
    return last_attempt(status.announcements, fact) >= 0
