"""The plan for one SampleSet: pure, from what is observed to what is to be done. Start reading here.

Actions follow from the observed state, never from the phase alone; the phase shows how far the set has come
on the contract's path, one step at a time so that each step can be observed.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from dataset_controller.domain.events import refusal_events
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.names import SECRET, Cond, SetPhase, set_finalizer
from dataset_controller.domain.sampleset.figures import decide_figures
from dataset_controller.domain.sampleset.model import ObservedSet, RuntimeConfig, SetPlan, SetStatus
from dataset_controller.domain.sampleset.policies.admission import Admission, admit
from dataset_controller.domain.sampleset.policies.children import (
    decide_runtime,
    decide_service,
    decide_volume,
)
from dataset_controller.domain.sampleset.policies.deletion import plan_deletion
from dataset_controller.domain.sampleset.policies.labels import follow_mounts
from dataset_controller.domain.sampleset.policies.migration import decide_migration, end_of_request
from dataset_controller.domain.sampleset.policies.ownership import find_foreign, ours, remove_left_over
from dataset_controller.domain.sampleset.policies.phase import next_phase
from dataset_controller.domain.sampleset.policies.runs import OwnRuns, Stage
from dataset_controller.domain.sampleset.policies.runtime_secret import decide_secrets
from dataset_controller.domain.sampleset.policies.scaling import ScalingDecision, decide_scaling
from dataset_controller.domain.sampleset.policies.staging import end_of_giving_up
from dataset_controller.domain.sampleset.policies.sync import decide_sync
from dataset_controller.domain.sampleset.policies.warmup import decide_warmup
from dataset_controller.domain.sampleset.runtime import (
    Runtime,
    held_partitions,
    runtime_of,
    wanted_partitions,
)
from dataset_controller.domain.sampleset.status import active_status, judged_status, observed_status
from dataset_controller.timing import (
    CORRECTION_CHECK_INTERVAL_SECONDS,
    RUN_CHECK_INTERVAL_SECONDS,
    WRITTEN_SECRET_CHECK_INTERVAL_SECONDS,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import AT_ONCE, Create, KubernetesEvent, Patch, earliest


def plan(seen: ObservedSet, config: RuntimeConfig, now: datetime) -> SetPlan:
    """What to do about the set now."""
    own = seen.sample_set
    if own.deleted_at:
        return plan_deletion(seen, config, now)
    return replace(_plan_live(seen, config, now), metadata=_metadata(seen) or None)


def _metadata(seen: ObservedSet) -> dict[str, Any]:
    """What changes in the set's own metadata."""
    finalizers, finalizer = seen.sample_set.finalizers, set_finalizer(seen.sample_set.key.name)
    kept = {} if finalizer in finalizers else {"finalizers": [*finalizers, finalizer]}
    removed = end_of_giving_up(seen) | end_of_request(seen)
    return kept | ({"annotations": removed} if removed else {})


def _plan_live(seen: ObservedSet, config: RuntimeConfig, now: datetime) -> SetPlan:
    spec = seen.sample_set.spec
    foreign = find_foreign(seen.children, seen.sample_set.uid)
    if spec is None or foreign is not None:
        return _refuse(seen, seen.sample_set.problem or foreign, now)
    admission = admit(seen, spec)
    if admission.problem and seen.status.phase is SetPhase.NOT_BOUND:
        return _refuse(seen, admission.problem, now)
    return _proceed(seen, admission, config, now)


def _refuse(seen: ObservedSet, problem: Problem | None, now: datetime) -> SetPlan:
    """Report what to correct, keep no key that is shared no more, and label the nodes that have it mounted.

    A change wakes the set, the timer is the safety net.
    """
    own = replace(seen, children=ours(seen.children, seen.sample_set.uid))
    status = observed_status(own, judged_status(own, problem, now), now)
    return SetPlan(
        status,
        actions=(
            *remove_left_over(seen.children, seen.sample_set.key, seen.sample_set.uid),
            *decide_secrets(own, None),
            *_labels(seen, own, now),
        ),
        events=refusal_events(seen.status, status),
        requeue_after=CORRECTION_CHECK_INTERVAL_SECONDS,
    )


def _labels(seen: ObservedSet, own: ObservedSet, now: datetime) -> tuple[Patch, ...]:
    """Of a set that is refused, whose pods run on. The pods of a StatefulSet that is not its own do not
    count, and while nobody knows how many partitions it has, its labels stay."""
    count, is_ours = wanted_partitions(own), seen.children.stateful_set == own.children.stateful_set
    return follow_mounts(own, runtime_of(own, now), count) if count and is_ours else ()


def _proceed(seen: ObservedSet, admission: Admission, config: RuntimeConfig, now: datetime) -> SetPlan:
    spec = admission.spec
    runtime = runtime_of(seen, now)
    runs = OwnRuns(decide_sync(seen, spec, admission.secrets, now), decide_warmup(seen, spec, runtime, now))
    judged = judged_status(seen, admission.problem, now, admission.remark)
    is_held = seen.sample_set.problem is not None or seen.is_in_old_place
    scaling = ScalingDecision(judged) if is_held else decide_scaling(seen, spec, runtime, judged, now)
    migration = decide_migration(seen, scaling.status, runtime, admission.problem, now)
    # Partitions that are to leave have data, and maybe writes, until they are gone.
    held = max(spec.partitions, held_partitions(seen, runtime))
    is_step = next_phase(seen.status.phase, runtime, spec.partitions, runs) is not seen.status.phase
    figures = decide_figures(seen, runtime, held, is_step=is_step)
    status = replace(migration.status, cache=figures.cache)
    status = active_status(seen, status, spec.partitions, runtime, runs, now)
    actions = (*_actions(seen, admission, runtime, config, runs, scaling), *migration.actions)
    return SetPlan(
        status,
        actions=actions,
        events=_events(seen.status, status),
        requeue_after=earliest(
            AT_ONCE if _is_step(seen.status, status) else None,
            CORRECTION_CHECK_INTERVAL_SECONDS if admission.problem or seen.troubles else None,
            CORRECTION_CHECK_INTERVAL_SECONDS if status.phase is SetPhase.SYNC_FAILED else None,
            WRITTEN_SECRET_CHECK_INTERVAL_SECONDS if _writes_secret(actions) else None,
            RUN_CHECK_INTERVAL_SECONDS if any(run.stage is Stage.RUNNING for run in runs) else None,
            scaling.wake_after,
            migration.wake_after,
            figures.wake_after,
            *(run.wake_after for run in runs),
        ),
    )


def _writes_secret(actions: tuple[Any, ...]) -> bool:
    return any(isinstance(action, Create | Patch) and action.kind == SECRET for action in actions)


def _is_step(before: SetStatus, after: SetStatus) -> bool:
    """The set's own write wakes nobody, but makes the next step possible."""
    return (before.phase, before.sync_job, before.warmup_job) != (
        after.phase,
        after.sync_job,
        after.warmup_job,
    )


def _actions(
    seen: ObservedSet,
    admission: Admission,
    runtime: Runtime,
    config: RuntimeConfig,
    runs: OwnRuns,
    scaling: ScalingDecision,
) -> tuple[Any, ...]:
    spec = admission.spec
    labels = follow_mounts(seen, runtime, spec.partitions)
    if seen.sample_set.problem:
        return (*decide_secrets(seen, None), *labels)
    return (
        *(decide_service(seen) if runtime.bound or (admission.secrets and not seen.children.secret) else ()),
        *decide_secrets(seen, admission.secrets),
        # A volume serves whoever uses its claim: none is made for a Secret that is refused.
        *(decide_volume(seen, spec) if admission.secrets else ()),
        *decide_runtime(seen, spec, runtime, config),
        *scaling.actions,
        *labels,
        *(action for run in runs for action in run.actions),
    )


def _events(before: SetStatus, after: SetStatus) -> tuple[KubernetesEvent, ...]:
    events = refusal_events(before, after)
    if before.phase is after.phase:
        return events
    return (*events, _phase_event(before, after))


_REACHED = {
    SetPhase.BOUND: Reason.BOUND,
    SetPhase.MOUNT: Reason.MOUNTED,
    SetPhase.PARTIAL_READY: Reason.PARTIAL_READY,
    SetPhase.READY: Reason.READY,
}


def _phase_event(before: SetStatus, after: SetStatus) -> KubernetesEvent:
    match after.phase:
        case SetPhase.SYNCING:
            return KubernetesEvent("Normal", Reason.SYNCING, f"started sync {after.sync_job}")
        case SetPhase.SYNC_FAILED:
            synced = after.condition(Cond.SYNCED)
            return KubernetesEvent("Warning", Reason.SYNC_FAILED, synced.message if synced else "")
        case SetPhase.MOUNT if before.phase is SetPhase.SYNCING:
            return KubernetesEvent("Normal", Reason.SYNCED, f"sync {after.sync_job} has succeeded")
    return KubernetesEvent("Normal", _REACHED[after.phase], f"phase is {after.phase.value}")
