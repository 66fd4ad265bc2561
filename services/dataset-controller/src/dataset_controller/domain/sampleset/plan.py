"""The plan for one SampleSet: pure, from what was observed to what shall be. Start reading here.

Actions follow from the observed world, never from the phase alone; the phase is where the world stands on the
contract's path, moved one step at a time so that each step can be seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from dataset_controller.domain.actions import Action, Notice, Patch
from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.journal import Journal, notices_of
from dataset_controller.domain.names import Cond, Reason, SetPhase, set_finalizer
from dataset_controller.domain.objects import deleted_at, version_of
from dataset_controller.domain.sampleset.figures import next_cache_status, runtime_status
from dataset_controller.domain.sampleset.model import ObservedSet, RuntimeConfig, SetPlan, SetStatus
from dataset_controller.domain.sampleset.policies.children import decide_runtime, decide_volume
from dataset_controller.domain.sampleset.policies.conditions import note_conditions
from dataset_controller.domain.sampleset.policies.deletion import plan_deletion
from dataset_controller.domain.sampleset.policies.facts import declare_facts
from dataset_controller.domain.sampleset.policies.labels import decide_labels
from dataset_controller.domain.sampleset.policies.own_runs import RunDecision, Standing
from dataset_controller.domain.sampleset.policies.ownership import refuse_foreign
from dataset_controller.domain.sampleset.policies.phase import next_phase
from dataset_controller.domain.sampleset.policies.runtime_secret import (
    SetSecrets,
    decide_secret,
    read_secrets,
)
from dataset_controller.domain.sampleset.policies.scaling import ScalingDecision, decide_scaling
from dataset_controller.domain.sampleset.policies.sync import decide_sync
from dataset_controller.domain.sampleset.policies.warmup import decide_warmup
from dataset_controller.domain.sampleset.spec import SetSpec, read_spec
from dataset_controller.domain.sampleset.world import World, survey

RECHECK_SECONDS = 30.0
"""How often something that the user must mend is looked at without being told of a change."""
RUN_SECONDS = 15.0
"""How often the record of an unfinished run is made sure of."""
FIGURES_SECONDS = 5.0
"""The least time between two writes of the figures."""


@dataclass(frozen=True)
class Admission:
    """What may be used of the user's wishes. `secrets` is None, with a problem, while they are wrong."""

    spec: SetSpec
    secrets: SetSecrets | None
    problem: Invalid | None = None


def plan(seen: ObservedSet, config: RuntimeConfig, now: datetime) -> SetPlan:
    """What to do about the set now."""
    if deleted_at(seen.obj):
        return plan_deletion(seen, now)
    if set_finalizer(seen.key.name) not in (seen.obj["metadata"].get("finalizers") or ()):
        return SetPlan(actions=(_hold(seen),))
    try:
        spec = read_spec(seen.obj)
        refuse_foreign(seen.children, seen.uid)
    except Invalid as problem:
        return _refuse(seen, problem, now)
    admission = _admit(seen, spec)
    if admission.problem and seen.status.phase is SetPhase.NEW:
        return _refuse(seen, admission.problem, now)
    return _proceed(seen, admission, config, now)


def _hold(seen: ObservedSet) -> Patch:
    """The finalizer goes on before anything is made."""
    finalizers = [*(seen.obj["metadata"].get("finalizers") or ()), set_finalizer(seen.key.name)]
    return Patch(
        "SampleSet",
        seen.key,
        {"metadata": {"finalizers": finalizers, "resourceVersion": version_of(seen.obj)}},
    )


def _admit(seen: ObservedSet, spec: SetSpec) -> Admission:
    """A Secret that goes bad later stops nothing that runs already."""
    try:
        return Admission(spec, read_secrets(seen, spec))
    except Invalid as problem:
        return Admission(spec, None, problem)


def _refuse(seen: ObservedSet, problem: Invalid, now: datetime) -> SetPlan:
    """Say what to mend; a change wakes the set, the timer is the safety net."""
    before = seen.status
    journal = before.journal.note(Cond.ACCEPTED, False, problem.reason, problem.message, now)
    return SetPlan(
        status=replace(before, journal=journal),
        notices=notices_of(before.journal, journal),
        requeue_after=RECHECK_SECONDS,
    )


def _proceed(seen: ObservedSet, admission: Admission, config: RuntimeConfig, now: datetime) -> SetPlan:
    spec, before = admission.spec, seen.status
    world = survey(seen, now)
    sync = decide_sync(seen, spec, admission.secrets, world, now)
    warmup = decide_warmup(seen, spec, world, now)
    phase = next_phase(before.phase, world, spec.partitions, sync, warmup)
    scaling = decide_scaling(seen, spec, world, _note_admission(before.journal, admission, now), now)
    journal = note_conditions(scaling.journal, phase, world, spec.partitions, (sync, warmup), now)
    journal = declare_facts(journal, before.phase, phase, sync, warmup, now)
    after = SetStatus(
        phase=phase,
        sync_job=_begun(before.sync_job, sync, phase is SetPhase.SYNCING),
        warmup_job=_begun(before.warmup_job, warmup, True),
        runtime=runtime_status(world, spec.partitions),
        cache=next_cache_status(seen, before, world, spec.partitions),
        journal=journal,
    )
    return SetPlan(
        actions=_actions(seen, admission, world, config, (sync, warmup), scaling),
        status=after,
        notices=_notices(before, after),
        requeue_after=_requeue(admission, (sync, warmup), scaling, is_throttled=not seen.figures_due),
    )


def _note_admission(journal: Journal, admission: Admission, now: datetime) -> Journal:
    if admission.problem is None:
        return journal.note(Cond.ACCEPTED, True, Reason.ACCEPTED, "", now)
    return journal.note(Cond.ACCEPTED, False, admission.problem.reason, admission.problem.message, now)


def _begun(current: str, run: RunDecision, may_begin: bool) -> str:
    """A run's id stands in the status before its record is written."""
    return run.run_id if run.standing is Standing.DUE and may_begin else current


def _actions(
    seen: ObservedSet,
    admission: Admission,
    world: World,
    config: RuntimeConfig,
    runs: tuple[RunDecision, RunDecision],
    scaling: ScalingDecision,
) -> tuple[Action, ...]:
    spec, secrets = admission.spec, admission.secrets
    return (
        *(decide_secret(seen, secrets) if secrets else ()),
        *decide_volume(seen, spec),
        *decide_runtime(seen, spec, world, config),
        *scaling.actions,
        *decide_labels(seen.identity, seen.nodes, world.partitions, spec.partitions),
        *(action for run in runs for action in run.actions),
    )


def _notices(before: SetStatus, after: SetStatus) -> tuple[Notice, ...]:
    notices = notices_of(before.journal, after.journal)
    if before.phase is after.phase:
        return notices
    match after.phase:
        case SetPhase.SYNCING:
            told = Notice("Normal", "CreateSyncJobSuccessfully", f"sync {after.sync_job} begins")
        case SetPhase.SYNC_FAILED:
            synced = after.journal.condition(Cond.SYNCED)
            told = Notice("Warning", "ErrorDoSyncJob", synced.message if synced else "")
        case SetPhase.MOUNT if before.phase is SetPhase.SYNCING:
            told = Notice("Normal", "DoSyncJobSuccessfully", f"sync {after.sync_job} is done")
        case _:
            told = Notice("Normal", f"SampleSet{after.phase.value}", f"phase is {after.phase.value}")
    return (*notices, told)


def _requeue(
    admission: Admission,
    runs: tuple[RunDecision, RunDecision],
    scaling: ScalingDecision,
    *,
    is_throttled: bool,
) -> float | None:
    """The nearest time at which something may change without a notice."""
    waits = [scaling.wake_after, *(run.wake_after for run in runs)]
    waits += [RUN_SECONDS for run in runs if run.standing is Standing.RUNNING]
    waits += [RECHECK_SECONDS] if admission.problem else []
    waits += [FIGURES_SECONDS] if is_throttled else []
    return min((wait for wait in waits if wait is not None), default=None)
