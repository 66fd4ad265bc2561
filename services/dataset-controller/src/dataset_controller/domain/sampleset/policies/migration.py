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
from dataset_controller.timing import MIGRATION_CHECK_INTERVAL_SECONDS, USERS_CHECK_INTERVAL_SECONDS
from paddlewheel.contracts.objects import annotations_of, deleted_at, key_of, uid_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import Action, Delete

SHOWN_USERS = 3
"""The most names of users in the message."""


class Migration(NamedTuple):
    """The next step, and the status with its condition."""

    status: SetStatus
    actions: tuple[Action, ...] = ()
    wake_after: float | None = None


def decide_migration(
    seen: ObservedSet, status: SetStatus, problem: Problem | None, now: datetime
) -> Migration:
    """The old StatefulSet is deleted, and the new one is created when the old pods have ended.

    Args:
        problem: why no runtime can be created at present.
    """
    if not seen.is_in_old_place:
        cleared = status.without_conditions(Cond.RUNTIME_MIGRATION_PENDING)
        return Migration(cleared, remove_left_behind(seen))
    if problem is not None:
        return Migration(_pending(status, problem.reason, problem.message, now))
    if seen.children.stateful_set is None:
        pending = _pending(status, Reason.MOVING, moving_message(seen), now)
        return Migration(pending, wake_after=MIGRATION_CHECK_INTERVAL_SECONDS)
    if waits := _waits_for_users(seen):
        pending = _pending(status, Reason.IN_USE, waits, now)
        return Migration(pending, wake_after=MIGRATION_CHECK_INTERVAL_SECONDS)
    if not seen.are_users_fresh and not _is_requested(seen):
        return Migration(status, wake_after=USERS_CHECK_INTERVAL_SECONDS)
    return Migration(_pending(status, Reason.MOVING, moving_message(seen), now), stop_old_runtime(seen))


def end_of_request(seen: ObservedSet) -> dict[str, None]:
    """The annotation to remove: the runtime has moved."""
    is_over = _is_requested(seen) and not seen.is_in_old_place
    return {MOVE_ANNOTATION: None} if is_over else {}


def _is_requested(seen: ObservedSet) -> bool:
    return MOVE_ANNOTATION in annotations_of(seen.obj)


def moving_message(seen: ObservedSet) -> str:
    """Names the pods that have to end first."""
    message = f"the runtime moves to namespace {seen.runtime.namespace}"
    if not seen.is_in_old_place or seen.children.stateful_set is not None:
        return message
    names_of_pods = " ".join(pod.key.name for pod in seen.pods)
    return (
        f"{message} when its old pods have ended; delete the remaining ones, which interrupts pods that use"
        f" the data: kubectl -n {seen.sample_set.key.namespace} delete pod {names_of_pods}"
    )


def stop_old_runtime(seen: ObservedSet) -> tuple[Action, ...]:
    """The Delete of the StatefulSet in the set's namespace."""
    found = seen.children.stateful_set if seen.is_in_old_place else None
    if found is None or deleted_at(found):
        return ()
    return (Delete(names.STATEFUL_SET, key_of(found), uid_of(found)),)


def remove_left_behind(seen: ObservedSet) -> tuple[Action, ...]:
    """The Service and Secret of a runtime that has been moved."""
    return tuple(
        Delete(kind, key_of(obj), uid_of(obj)) for kind, obj in seen.left_behind if not deleted_at(obj)
    )


def _waits_for_users(seen: ObservedSet) -> str:
    """The message; "" when the runtime may move."""
    key, home = seen.sample_set.key, seen.runtime.namespace
    if _is_requested(seen) or seen.users == ():
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
