"""The set's first sync: begun in phase Mount, begun again after a failure only when something changed."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.actions import ForgetRun, WriteRun
from dataset_controller.domain.names import Cond, Fact, Reason, SetPhase
from dataset_controller.domain.operations import sync_operation
from dataset_controller.domain.runs import RUNTIME_PREFIX, digest, is_ended, make_run, run_id
from dataset_controller.domain.sampleset.model import ObservedSet
from dataset_controller.domain.sampleset.policies.own_runs import RunDecision, Standing
from dataset_controller.domain.sampleset.policies.runtime_secret import SetSecrets
from dataset_controller.domain.sampleset.spec import SetSpec
from dataset_controller.domain.sampleset.world import World
from dataset_controller.domain.secrets import version
from dataset_controller.domain.text import age
from paddlewheel.contracts.generated.cache_v1 import RunPhase, SyncOperation

SPREAD_SECONDS = 30.0
"""How long the sync waits for all partitions before it begins with those that are there."""


def decide_sync(
    seen: ObservedSet, spec: SetSpec, secrets: SetSecrets | None, world: World, now: datetime
) -> RunDecision:
    """Where the first sync stands.

    Args:
        secrets: None while the user's Secrets are wrong: nothing new begins then.
    """
    status = seen.status
    if (over := _over(seen)) is not None:
        return over
    if status.phase is SetPhase.SYNCING and status.sync_job:
        return _follow(seen, spec, secrets, world, now)
    if spec.no_sync:
        return RunDecision(Standing.NOT_NEEDED)
    if secrets is None or spec.source is None:
        return RunDecision(Standing.BLOCKED)
    due = _begin(seen, _operation(spec, secrets))
    wait = _wait_for_all(seen, world, spec.partitions, now)
    if due.standing is Standing.DUE and seen.status.phase is SetPhase.MOUNT and wait > 0:
        return RunDecision(Standing.BLOCKED, wake_after=wait)
    return due


def _over(seen: ObservedSet) -> RunDecision | None:
    """What the status remembers, also when the bus has forgotten it."""
    synced = seen.status.journal.condition(Cond.SYNCED)
    if synced is None or synced.status != "True":
        return None
    if synced.reason == Reason.NOT_NEEDED:
        return RunDecision(Standing.NOT_NEEDED)
    return RunDecision(Standing.DONE, seen.status.sync_job, state=seen.runs.get(seen.status.sync_job))


def _wait_for_all(seen: ObservedSet, world: World, partitions: int, now: datetime) -> float:
    """Seconds; the work is split by partition when it begins, so all of them should be there."""
    if world.ready_prefix(partitions) == partitions:
        return 0.0
    mounted = seen.status.journal.condition(Cond.MOUNTED)
    return SPREAD_SECONDS - age(mounted.last_transition_time if mounted else "", now)


def _operation(spec: SetSpec, secrets: SetSecrets) -> SyncOperation:
    uri = spec.source.uri if spec.source else ""
    return sync_operation({}, uri).model_copy(update={"secret": RUNTIME_PREFIX if secrets.source else ""})


def _follow(
    seen: ObservedSet, spec: SetSpec, secrets: SetSecrets | None, world: World, now: datetime
) -> RunDecision:
    """The run of the status: over, or its record must stand on the bus."""
    run = seen.status.sync_job
    state = seen.runs.get(run)
    if state is not None and is_ended(state):
        standing = Standing.DONE if state.phase is RunPhase.SUCCEEDED else Standing.FAILED
        return RunDecision(standing, run, state=state)
    if secrets is None:
        return RunDecision(Standing.RUNNING, run, state=state)
    record = make_run(
        seen.identity, run, max(1, world.ready_prefix(spec.partitions)), _operation(spec, secrets), now
    )
    return RunDecision(Standing.RUNNING, run, (WriteRun(record),), state)


def _begin(seen: ObservedSet, operation: SyncOperation) -> RunDecision:
    """A run id tells what was asked for: the same id again means that nothing changed since it failed."""
    status = seen.status
    attempt = status.journal.attempt(Fact.SYNC_FAILED) + 1
    if status.sync_job and status.sync_job == _run_id(seen, operation, attempt - 1):
        return RunDecision(Standing.FAILED, status.sync_job, state=seen.runs.get(status.sync_job))
    forget = (ForgetRun(seen.run_key(status.sync_job)),) if status.sync_job else ()
    return RunDecision(Standing.DUE, _run_id(seen, operation, attempt), forget)


def _run_id(seen: ObservedSet, operation: SyncOperation, attempt: int) -> str:
    return run_id(seen.uid, "sync", str(attempt), digest(operation), version(seen.source_secret))
