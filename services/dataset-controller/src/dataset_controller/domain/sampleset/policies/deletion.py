"""Deleting a SampleSet: users first, then what they have written, caches, labels, pods, volumes, records;
remote data stays. The time that each step gets begins when the set is free: users may stay for days."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from dataset_controller.domain import names
from dataset_controller.domain.actions import CancelRun, ForgetSet, WriteRun
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.names import Cond, set_finalizer
from dataset_controller.domain.runs import is_ended, make_run, run_id, unfinished
from dataset_controller.domain.sampleset.model import (
    Children,
    ObservedSet,
    RuntimeConfig,
    SetPlan,
    SetStatus,
)
from dataset_controller.domain.sampleset.policies.admission import admit
from dataset_controller.domain.sampleset.policies.children import decide_service
from dataset_controller.domain.sampleset.policies.conditions import with_staged_writes
from dataset_controller.domain.sampleset.policies.kept_runtime import find_obstacle, keep_runtime
from dataset_controller.domain.sampleset.policies.labels import decide_labels, follow_mounts
from dataset_controller.domain.sampleset.policies.migration import (
    list_users,
    moving_message,
    stop_old_runtime,
    with_pending,
)
from dataset_controller.domain.sampleset.policies.ownership import ours
from dataset_controller.domain.sampleset.policies.runtime_secret import decide_secrets
from dataset_controller.domain.sampleset.policies.staging import staged_writes
from dataset_controller.domain.sampleset.runtime import Runtime, runtime_of, wanted_partitions
from dataset_controller.domain.sampleset.status import (
    observed_status,
    unready_status,
    with_facts,
)
from dataset_controller.timing import (
    BUS_DELETION_TIMEOUT_SECONDS,
    CACHE_CLEAR_TIMEOUT_SECONDS,
    MOVED_RUNTIME_TIMEOUT_SECONDS,
    RUNTIME_PODS_TIMEOUT_SECONDS,
    USERS_CHECK_INTERVAL_SECONDS,
)
from paddlewheel.contracts.generated.cache_v1 import ClearOperation
from paddlewheel.contracts.objects import Object, created_at, deleted_at, key_of, uid_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import age
from paddlewheel.operator.domain.plan import Action, Create, Delete

LEFT = "what the set has in its namespace is left to Kubernetes' garbage collector"
_TASKS = {Reason.IN_USE: "mount", Reason.STAGED_WRITES: "upload", Reason.MOVING: "clear"}

Step = tuple[Any, ...]


def plan_deletion(seen: ObservedSet, config: RuntimeConfig, now: datetime) -> SetPlan:
    """The next step; each step waits until the one before is observed to be done."""
    own = seen.sample_set
    if set_finalizer(own.key.name) not in own.finalizers:
        return SetPlan()
    if seen.users is None:
        return SetPlan(seen.status, requeue_after=USERS_CHECK_INTERVAL_SECONDS)
    if seen.users:
        waits = f"waits for pods that use the data: {list_users(seen.users)}"
        return _wait(seen, config, Reason.IN_USE, waits, now)
    if seen.is_in_old_place and _is_unknown(seen):
        return SetPlan(seen.status, requeue_after=USERS_CHECK_INTERVAL_SECONDS)
    if _is_moving(seen, now):
        return _move(seen, config, now)
    if staged := staged_writes(seen, now):
        return _wait(seen, config, Reason.STAGED_WRITES, staged, now)
    if not seen.are_users_fresh:
        return SetPlan(seen.status, requeue_after=USERS_CHECK_INTERVAL_SECONDS)
    children = ours(seen.children, own.uid)
    since = _free_for(seen, now)
    step = _clear(seen, children, runtime_of(seen, now), since, now)
    if step is None:
        step = _stop(seen, children, since)
    if step is None:
        step = _remove(seen, children)
    if step is None:
        return _release(seen, since, now)
    return SetPlan(_status(seen, now), step, requeue_after=USERS_CHECK_INTERVAL_SECONDS)


def _wait(seen: ObservedSet, config: RuntimeConfig, reason: Reason, message: str, now: datetime) -> SetPlan:
    """Pods use the set: it keeps its runtime, and its Secrets, labels and status are kept up to date."""
    own = seen.sample_set
    seen = replace(seen, children=ours(seen.children, own.uid))
    kept, runtime = keep_runtime(seen, config, now), runtime_of(seen, now)
    if kept.obstacle:
        message = f"{message}; no runtime pod can {_TASKS[reason]} it: {kept.obstacle}"
    elif runtime.first_trouble:
        message = f"{message}; {runtime.first_trouble}"
    status = observed_status(seen, unready_status(seen, reason, "", now), now)
    status = status.with_condition(Cond.READY, False, reason, message, now)
    status = status.with_condition(Cond.FREE, False, reason, "", now)
    labels = follow_mounts(seen, runtime, wanted_partitions(seen))
    actions = (*_keys(seen), *labels, *kept.actions)
    if any(isinstance(action, Create) for action in actions):
        actions = (*decide_service(seen), *actions)
    return SetPlan(status, actions, requeue_after=USERS_CHECK_INTERVAL_SECONDS)


def _is_moving(seen: ObservedSet, now: datetime) -> bool:
    """A runtime in its old place is moved before the set goes: only the pods of the next one report what is
    staged, and empty the caches. They get some time to mount."""
    if seen.status.holds(Cond.FREE) or find_obstacle(seen):
        return False
    if seen.is_in_old_place:
        return True
    runtime, wanted = runtime_of(seen, now), wanted_partitions(seen)
    if not seen.status.holds(Cond.RUNTIME_MIGRATION_PENDING) or runtime.ready_below(wanted) == wanted:
        return False
    made = seen.children.stateful_set
    return made is None or age(created_at(made), now) <= MOVED_RUNTIME_TIMEOUT_SECONDS


def _move(seen: ObservedSet, config: RuntimeConfig, now: datetime) -> SetPlan:
    if seen.is_in_old_place and not seen.are_users_fresh:
        return SetPlan(seen.status, requeue_after=USERS_CHECK_INTERVAL_SECONDS)
    message = moving_message(seen)
    waiting = _wait(seen, config, Reason.MOVING, f"before it is deleted, {message}", now)
    assert waiting.status is not None
    status = with_pending(waiting.status, Reason.MOVING, message, now)
    return replace(waiting, status=status, actions=(*waiting.actions, *stop_old_runtime(seen)))


def _is_unknown(seen: ObservedSet) -> bool:
    """A Secret that decides whether the runtime can move could not be read."""
    named = (seen.engine_secret, seen.source_secret)
    return any(isinstance(each, Problem) and each.reason == Reason.FAILED_GET for each in named)


def _keys(seen: ObservedSet) -> tuple[Action, ...]:
    """Clients and agents need the present keys to finish their uploads."""
    spec = seen.sample_set.spec
    return () if spec is None else decide_secrets(seen, admit(seen, spec).secrets)


def _free_for(seen: ObservedSet, now: datetime) -> float:
    """Seconds since nothing keeps the set."""
    free = seen.status.condition(Cond.FREE)
    return age(free.last_transition_time, now) if free is not None and free.status == "True" else 0.0


def _status(seen: ObservedSet, now: datetime) -> SetStatus:
    reason, message = Reason.TERMINATING, ""
    if seen.unserved is not None:
        reason = seen.unserved.reason
        message = f"{LEFT}; to have it removed in order: {seen.unserved.message}"
    status = unready_status(seen, reason, message, now)
    if not seen.status.holds(Cond.FREE):
        # Later its agents end, and measure nothing.
        status = with_staged_writes(seen, status, now)
    return status.with_condition(Cond.FREE, True, Reason.TERMINATING, "", now)


def _clear(
    seen: ObservedSet, children: Children, runtime: Runtime, since: float, now: datetime
) -> Step | None:
    """Stop what runs and empty the caches while there are agents to do it."""
    own, run = seen.sample_set, run_id(seen.sample_set.uid, "delete")
    stateful_set = children.stateful_set
    is_possible = stateful_set is not None and not deleted_at(stateful_set) and runtime.mounted
    if not is_possible or since > CACHE_CLEAR_TIMEOUT_SECONDS or is_ended(seen.runs.get(run)):
        return None
    ready = [p.index for p in runtime.partitions if p.ready]
    record = make_run(own.identity, run, max(ready) + 1, ClearOperation(partitions=ready), now)
    others = (r for r in unfinished(seen.runs) if r != run)
    return (*(CancelRun(own.run_key(r)) for r in others), WriteRun(record))


def _stop(seen: ObservedSet, children: Children, since: float) -> Step | None:
    """Remove labels and StatefulSet, and wait for the pods."""
    labels = decide_labels(seen.sample_set.identity, seen.nodes, (), 0)
    is_left = children.stateful_set is not None and not _is_unserved(seen, children.stateful_set)
    if labels or is_left:
        return (*labels, *_deletes((names.STATEFUL_SET, children.stateful_set if is_left else None)))
    is_ending = children.stateful_set is None and not all(pod.has_ended for pod in seen.pods)
    return () if is_ending and since < RUNTIME_PODS_TIMEOUT_SECONDS else None


def _remove(seen: ObservedSet, children: Children) -> Step | None:
    """Secrets, claim, Service, volume. The claim is gone before the volume is deleted.

    In a namespace where this service has no rights, the garbage collector removes the objects with the set,
    and the volume is deleted before.
    """
    first = (
        (names.SECRET, children.secret),
        (names.SECRET, children.volume_secret),
        *seen.elsewhere,
        (names.CLAIM, children.claim),
        (names.SERVICE_KIND, children.service),
    )
    ours = [(kind, obj) for kind, obj in first if obj is not None and not _is_unserved(seen, obj)]
    if ours:
        return _deletes(*ours)
    if seen.unserved is not None:
        return _deletes((names.VOLUME, children.volume)) or None
    return None if children.volume is None else _deletes((names.VOLUME, children.volume))


def _is_unserved(seen: ObservedSet, obj: Object) -> bool:
    """This service has no rights in the namespace of the object."""
    return seen.unserved is not None and key_of(obj).namespace == seen.sample_set.key.namespace


def _deletes(*named: tuple[str, Object | None]) -> Step:
    """Deletes the objects that exist and are not being deleted yet."""
    return tuple(
        Delete(kind, key_of(obj), uid_of(obj))
        for kind, obj in named
        if obj is not None and not deleted_at(obj)
    )


def _release(seen: ObservedSet, since: float, now: datetime) -> SetPlan:
    """Remove the records, publish the last fact, and only then remove the finalizer."""
    own = seen.sample_set
    finalizer = set_finalizer(own.key.name)
    return SetPlan(
        with_facts(seen, _status(seen, now), now, is_removed=True),
        actions=(ForgetSet(own.uid),),
        release={"finalizers": [f for f in own.finalizers if f != finalizer]},
        release_anyway=since > BUS_DELETION_TIMEOUT_SECONDS,
        requeue_after=USERS_CHECK_INTERVAL_SECONDS,
    )
