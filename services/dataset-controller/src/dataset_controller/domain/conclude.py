"""Folding the outcome of a plan's actions into status and events, the same for both kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from dataset_controller.domain import names
from dataset_controller.domain.actions import BUS, RECORD
from dataset_controller.domain.events import warning_events
from dataset_controller.domain.names import Cond, Reason
from dataset_controller.domain.status import ObjectStatus
from paddlewheel.operator.domain.plan import Applied, KubernetesEvent, Plan, Trouble

S = TypeVar("S", bound=ObjectStatus)


def conclude(before: S, todo: Plan[S], applied: Applied, unread: Sequence[Trouble], now: datetime) -> Plan[S]:
    """The plan as it is recorded.

    Args:
        before: the recorded status.
        unread: what could not be read for this plan.
    """
    release = todo.release if todo.release_anyway or not _has_records_left(applied) else None
    created = tuple(_created_event(kind) for kind in applied.created)
    if todo.status is None:
        return replace(todo, release=release, events=(*created, *todo.events))
    shown = [t for t in (*unread, *applied.troubles) if t.kind != BUS]
    status = _with_trouble(todo.status, Applied(troubles=tuple(shown)).first, now)
    warnings = warning_events(before, status, Cond.RECONCILED)
    return replace(todo, status=status, release=release, events=(*created, *warnings, *todo.events))


def _has_records_left(applied: Applied) -> bool:
    """Records that should have been removed from the bus before the object goes."""
    return any(t.kind in (BUS, RECORD) for t in applied.troubles)


def _created_event(kind: str) -> KubernetesEvent:
    return KubernetesEvent("Normal", f"Create{names.SHORT.get(kind, kind)}Successfully", f"created {kind}")


def _with_trouble(status: S, trouble: Trouble | None, now: datetime) -> S:
    """Without a condition as long as there never was a trouble."""
    if trouble is not None:
        return status.with_condition(Cond.RECONCILED, False, _reason(trouble), _message(trouble), now)
    if status.condition(Cond.RECONCILED) is None:
        return status
    return status.with_condition(Cond.RECONCILED, True, Reason.ACCEPTED, "", now)


def _reason(trouble: Trouble) -> str:
    """A foreign object's `Error<Kind>AlreadyExist` stays; the API server's reasons of a creation do not."""
    kind = names.SHORT.get(trouble.kind, trouble.kind)
    if trouble.verb != "create" or trouble.reason == f"Error{kind}AlreadyExist":
        return trouble.reason
    return f"ErrorCreate{kind}"


def _message(trouble: Trouble) -> str:
    is_foreign = trouble.verb == "create" and trouble.reason.endswith("AlreadyExist")
    return trouble.message if is_foreign else f"{trouble.subject}: {trouble.message}"
