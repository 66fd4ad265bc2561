"""Taking a SampleSet down: users first, then caches, labels, pods, volumes, records; remote data stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from dataset_controller.domain.actions import Action, CancelRun, Child, Delete, ForgetSet, Patch, WriteRun
from dataset_controller.domain.names import Cond, Fact, Reason, set_finalizer
from dataset_controller.domain.objects import Object, deleted_at, key_of, status_of, uid_of, version_of
from dataset_controller.domain.runs import is_ended, make_run, run_id, unfinished
from dataset_controller.domain.sampleset.model import Children, ObservedSet, SetPlan, SetStatus
from dataset_controller.domain.sampleset.policies.labels import decide_labels
from dataset_controller.domain.sampleset.policies.ownership import ours
from dataset_controller.domain.sampleset.world import World, survey
from dataset_controller.domain.text import age
from paddlewheel.contracts.generated.cache_v1 import ClearOperation

CLEAR_SECONDS = 60.0
"""How long the agents may take to empty their caches."""
PODS_SECONDS = 120.0
"""How long runtime pods are waited for; pods of a dead node never end."""
BUS_SECONDS = 600.0
"""How long the bus is waited for; its records go by the set's uid and do no harm."""
LOOK_AGAIN_SECONDS = 5.0


def plan_deletion(seen: ObservedSet, now: datetime) -> SetPlan:
    """The next step; each step waits until the world shows that the one before is done."""
    if set_finalizer(seen.key.name) not in (seen.obj["metadata"].get("finalizers") or ()):
        return SetPlan()
    if seen.users:
        return _in_use(seen, now)
    children = ours(seen.children, seen.uid)
    world = survey(seen, now)
    since = age(deleted_at(seen.obj), now)
    steps = _clear(seen, children, world, since, now)
    if steps is None:
        steps = _stop(seen, children, since)
    if steps is None:
        steps = _remove(children)
    if steps is None:
        return _release(seen, since, now)
    return SetPlan(steps, _terminating(seen, now), requeue_after=LOOK_AGAIN_SECONDS)


def _in_use(seen: ObservedSet, now: datetime) -> SetPlan:
    status = seen.status
    names = ", ".join(seen.users[:3]) + (f" and {len(seen.users) - 3} more" if len(seen.users) > 3 else "")
    journal = status.journal.note(
        Cond.READY, False, Reason.IN_USE, f"waits for pods that use the data: {names}", now
    )
    return SetPlan(status=replace(status, journal=journal), requeue_after=LOOK_AGAIN_SECONDS)


def _terminating(seen: ObservedSet, now: datetime) -> SetStatus:
    status = seen.status
    return replace(status, journal=status.journal.note(Cond.READY, False, Reason.TERMINATING, "", now))


def _clear(
    seen: ObservedSet, children: Children, world: World, since: float, now: datetime
) -> tuple[Action, ...] | None:
    """Stop what runs and empty the caches while there are agents to do it."""
    run = run_id(seen.uid, "delete")
    is_possible = (
        children.stateful_set is not None and not deleted_at(children.stateful_set) and world.mounted
    )
    if not is_possible or since > CLEAR_SECONDS or is_ended(seen.runs.get(run)):
        return None
    ready = [p.index for p in world.partitions if p.ready]
    record = make_run(seen.identity, run, max(ready) + 1, ClearOperation(partitions=ready), now)
    others = (r for r in unfinished(seen.runs) if r != run)
    return (*(CancelRun(seen.run_key(r)) for r in others), WriteRun(record))


def _stop(seen: ObservedSet, children: Children, since: float) -> tuple[Action, ...] | None:
    """Labels off, StatefulSet away, and wait for the pods."""
    actions: list[Action] = list(decide_labels(seen.identity, seen.nodes, (), 0))
    actions += _deletes(("StatefulSet", children.stateful_set))
    if actions or (children.stateful_set is not None):
        return tuple(actions)
    running = [pod for pod in seen.pods if status_of(pod).get("phase") == "Running"]
    return () if running and since < PODS_SECONDS else None


def _remove(children: Children) -> tuple[Action, ...] | None:
    """Service, Secret, claim, volume; the claim is gone before the volume is deleted."""
    first: tuple[tuple[Child, Object | None], ...] = (
        ("Service", children.service),
        ("Secret", children.secret),
        ("PersistentVolumeClaim", children.claim),
    )
    if any(obj is not None for _, obj in first):
        return tuple(_deletes(*first))
    if children.volume is not None:
        return tuple(_deletes(("PersistentVolume", children.volume)))
    return None


def _deletes(*named: tuple[Child, Object | None]) -> list[Action]:
    """Those that exist and are not on their way out yet."""
    return [
        Delete(kind, key_of(obj), uid_of(obj))
        for kind, obj in named
        if obj is not None and not deleted_at(obj)
    ]


def _release(seen: ObservedSet, since: float, now: datetime) -> SetPlan:
    """Records away, the last fact told, and only then the finalizer."""
    status = seen.status
    journal = status.journal.declare(Fact.DELETED, now)
    finalizer = set_finalizer(seen.key.name)
    kept = [f for f in seen.obj["metadata"].get("finalizers") or () if f != finalizer]
    patch = {"metadata": {"finalizers": kept, "resourceVersion": version_of(seen.obj)}}
    return SetPlan(
        actions=(ForgetSet(seen.uid),),
        status=replace(status, journal=journal),
        release=Patch("SampleSet", seen.key, patch),
        release_anyway=since > BUS_SECONDS,
        requeue_after=LOOK_AGAIN_SECONDS,
    )
