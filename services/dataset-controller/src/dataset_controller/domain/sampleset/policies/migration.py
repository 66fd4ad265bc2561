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
from dataset_controller.domain.sampleset.runtime import Runtime
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
    seen: ObservedSet, status: SetStatus, runtime: Runtime, problem: Problem | None, now: datetime
) -> Migration:
    """The old StatefulSet is deleted, the new one is created when the old pods have ended, and the move is
    over when one of the new pods has mounted. Then the next set moves: a mistake that keeps new pods from
    starting costs one set its runtime, and not all of them.

    Args:
        problem: why no runtime can be created at present.
    """
    if not seen.is_in_old_place:
        is_over = runtime.mounted or not status.holds(Cond.RUNTIME_MIGRATION_PENDING)
        moved = status.without_conditions(Cond.RUNTIME_MIGRATION_PENDING) if is_over else status
        return Migration(moved, remove_elsewhere(seen))
    if problem is not None:
        return Migration(with_pending(status, problem.reason, problem.message, now))
    if not runtime.bound:
        waits = "the runtime moves when the claim is bound"
        return Migration(with_pending(status, Reason.WAITING_FOR_VOLUME, waits, now))
    if seen.children.stateful_set is None:
        pending = with_pending(status, Reason.MOVING, moving_message(seen), now)
        return Migration(pending, wake_after=MIGRATION_CHECK_INTERVAL_SECONDS)
    if waits := _waits_for_users(seen):
        pending = with_pending(status, Reason.IN_USE, waits, now)
        return Migration(pending, wake_after=MIGRATION_CHECK_INTERVAL_SECONDS)
    if seen.other_moving and not _is_requested(seen):
        waits = f"the runtime moves after that of SampleSet {seen.other_moving}"
        pending = with_pending(status, Reason.WAITING_FOR_TURN, waits, now)
        return Migration(pending, wake_after=MIGRATION_CHECK_INTERVAL_SECONDS)
    if not seen.are_users_fresh and not _is_requested(seen):
        return Migration(status, wake_after=USERS_CHECK_INTERVAL_SECONDS)
    return Migration(with_pending(status, Reason.MOVING, moving_message(seen), now), stop_old_runtime(seen))


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


def remove_elsewhere(seen: ObservedSet) -> tuple[Action, ...]:
    """Deletes the set's objects where its runtime is not: it must not have two."""
    if seen.unserved is not None:
        return ()
    return tuple(Delete(kind, key_of(obj), uid_of(obj)) for kind, obj in seen.elsewhere)


def _waits_for_users(seen: ObservedSet) -> str:
    """The message; "" when the runtime may move."""
    key, home = seen.sample_set.key, seen.runtime.namespace
    if _is_requested(seen) or seen.users == ():
        return ""
    used_by = (
        f"pods use the data: {list_users(seen.users)}" if seen.users else "it is unknown who uses the data"
    )
    return (
        f"the runtime is in namespace {key.namespace}, where an earlier release created it; it moves to"
        f" {home} while no pod uses the data. Now {used_by}. To move it at once, which interrupts them:"
        f" kubectl -n {key.namespace} annotate sampleset {key.name} {MOVE_ANNOTATION}=now"
    )


def list_users(users: tuple[str, ...]) -> str:
    """The names of the first users, and the number of others."""
    more = len(users) - SHOWN_USERS
    return ", ".join(users[:SHOWN_USERS]) + (f" and {more} more" if more > 0 else "")


def with_pending(status: SetStatus, reason: Reason, message: str, now: datetime) -> SetStatus:
    if reason is Reason.MOVING and status.reason_of(Cond.RUNTIME_MIGRATION_PENDING) != reason:
        # The condition also shows since when the runtime moves.
        status = status.without_conditions(Cond.RUNTIME_MIGRATION_PENDING)
    return status.with_condition(Cond.RUNTIME_MIGRATION_PENDING, True, reason, message, now)
