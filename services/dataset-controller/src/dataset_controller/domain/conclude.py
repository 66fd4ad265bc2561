"""Folding the outcome of a plan's actions into status and events, the same for both kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from dataset_controller.domain.actions import BUS, RECORD
from dataset_controller.domain.events import warning_events
from dataset_controller.domain.names import Cond
from dataset_controller.domain.status import ObjectStatus
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import Applied, ChildRef, KubernetesEvent, Plan, Trouble

S = TypeVar("S", bound=ObjectStatus)


def conclude(before: S, todo: Plan[S], applied: Applied, unread: Sequence[Trouble], now: datetime) -> Plan[S]:
    """The plan as it is recorded.

    Args:
        before: the recorded status.
        unread: what could not be read for this plan.
    """
    release = todo.release if todo.release_anyway or not _has_records_left(applied) else None
    created = _created_events(applied.children)
    if todo.status is None:
        return replace(todo, release=release, events=(*created, *todo.events))
    shown = [t for t in (*unread, *applied.troubles) if t.kind != BUS]
    status = _with_trouble(todo.status, Applied(troubles=tuple(shown)).first, now)
    warnings = warning_events(before, status, Cond.RECONCILED)
    return replace(todo, status=status, release=release, events=(*created, *warnings, *todo.events))


def _has_records_left(applied: Applied) -> bool:
    """Records that should have been removed from the bus before the object goes."""
    return any(t.kind in (BUS, RECORD) for t in applied.troubles)


def _created_events(children: Sequence[ChildRef]) -> tuple[KubernetesEvent, ...]:
    """One for all children of a pass: Events are a good part of what many sets ask of the API server."""
    named = ", ".join(f"{child.kind} {child.key}" for child in children)
    return (KubernetesEvent("Normal", Reason.SUCCESSFUL_CREATE, f"created {named}"),) if named else ()


def _with_trouble(status: S, trouble: Trouble | None, now: datetime) -> S:
    """Without a condition as long as there never was a trouble."""
    if trouble is not None:
        return status.with_condition(Cond.RECONCILED, False, trouble.shown_reason, trouble.shown_message, now)
    if status.condition(Cond.RECONCILED) is None:
        return status
    return status.with_condition(Cond.RECONCILED, True, Reason.RECOVERED, "", now)
