"""Moves a runtime from the set's namespace, where earlier releases created it, to that of the release.

The new runtime has the same mount path and cache directories. Its pods prefer the same nodes, so they find
what is cached there, and upload what is still staged. Users of the data lose the mount for that time, so the
runtime moves while no pod uses the claim, or when the user asks for it.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from dataset_controller.domain import names
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.names import MOVE_ANNOTATION, Cond
from dataset_controller.domain.sampleset.model import ObservedSet, SetStatus
from dataset_controller.timing import MIGRATION_CHECK_INTERVAL_SECONDS
from paddlewheel.contracts.objects import annotations_of, deleted_at, key_of, uid_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import AT_ONCE, Action, Delete

SHOWN_USERS = 3
"""The most names of pods in the message."""


class Migration(NamedTuple):
    """The next step, and the status with its condition."""

    status: SetStatus
    actions: tuple[Action, ...] = ()
    wake_after: float | None = None


def decide_migration(
    seen: ObservedSet, status: SetStatus, problem: Problem | None, now: datetime
) -> Migration:
    """The condition is recorded before anything is deleted: it shows that pods of the old runtime may still
    end when its StatefulSet is gone.

    Args:
        problem: why no runtime can be created at present.
    """
    if not seen.is_in_old_place:
        cleared = status.without_conditions(Cond.RUNTIME_MIGRATION_PENDING)
        return Migration(cleared, remove_left_behind(seen))
    if problem is not None:
        return Migration(_pending(status, problem.reason, problem.message, now))
    if waits := _waits_for_users(seen):
        pending = _pending(status, Reason.IN_USE, waits, now)
        return Migration(pending, wake_after=MIGRATION_CHECK_INTERVAL_SECONDS)
    message = f"the runtime moves to namespace {seen.runtime.namespace}"
    moving = _pending(status, Reason.MOVING, message, now)
    if status.reason_of(Cond.RUNTIME_MIGRATION_PENDING) != Reason.MOVING:
        return Migration(moving, wake_after=AT_ONCE)
    return Migration(moving, _stop(seen))


def remove_left_behind(seen: ObservedSet) -> tuple[Action, ...]:
    """The Service and Secret of a runtime that has been moved."""
    return tuple(
        Delete(kind, key_of(obj), uid_of(obj)) for kind, obj in seen.left_behind if not deleted_at(obj)
    )


def _waits_for_users(seen: ObservedSet) -> str:
    """The message; "" when the runtime may move."""
    key, home = seen.sample_set.key, seen.runtime.namespace
    if MOVE_ANNOTATION in annotations_of(seen.obj) or seen.users == ():
        return ""
    used_by = f"pods use the data: {_list(seen.users)}" if seen.users else "it is unknown who uses the data"
    return (
        f"the runtime is in namespace {key.namespace}, where an earlier release created it; it moves to"
        f" {home} while no pod uses the data. Now {used_by}. To move it at once, which interrupts them:"
        f" kubectl -n {key.namespace} annotate sampleset {key.name} {MOVE_ANNOTATION}=now"
    )


def _list(users: tuple[str, ...]) -> str:
    more = len(users) - SHOWN_USERS
    return ", ".join(users[:SHOWN_USERS]) + (f" and {more} more" if more > 0 else "")


def _pending(status: SetStatus, reason: Reason, message: str, now: datetime) -> SetStatus:
    return status.with_condition(Cond.RUNTIME_MIGRATION_PENDING, True, reason, message, now)


def _stop(seen: ObservedSet) -> tuple[Action, ...]:
    """The Delete of the StatefulSet. Its pods end before the runtime is created again."""
    found = seen.children.stateful_set
    if found is None or deleted_at(found):
        return ()
    return (Delete(names.STATEFUL_SET, key_of(found), uid_of(found)),)
