"""The set's first sync: started in phase Mount, after a failure only when something has changed."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.actions import ForgetRun, WriteRun
from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.operations import sync_operation
from dataset_controller.domain.runs import RUNTIME_PREFIX, digest, is_ended, make_run, run_id
from dataset_controller.domain.sampleset.model import ObservedSet, SetSpec
from dataset_controller.domain.sampleset.policies.runs import RunDecision, Stage
from dataset_controller.domain.sampleset.policies.runtime_secret import SetSecrets
from dataset_controller.domain.sampleset.runtime import Runtime
from dataset_controller.domain.secrets import version
from paddlewheel.contracts.crds import SyncOptions
from paddlewheel.contracts.generated.cache_v1 import RunPhase, SyncOperation
from paddlewheel.contracts.generated.datasets_v1 import SampleSetSyncFailed
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import age

SPREAD_SECONDS = 30.0
"""Time that the sync waits for all partitions before it starts with those that are there."""


def decide_sync(
    seen: ObservedSet, spec: SetSpec, secrets: SetSecrets | None, runtime: Runtime, now: datetime
) -> RunDecision:
    """How far the first sync has come.

    Args:
        secrets: None while the user's Secrets are invalid: nothing starts then.
    """
    status = seen.status
    if (over := _over(seen)) is not None:
        return over
    if status.phase is SetPhase.SYNCING and status.sync_job:
        return _follow(seen, spec, secrets, runtime, now)
    if spec.no_sync:
        return RunDecision(Stage.NOT_NEEDED)
    if secrets is None or spec.source is None:
        return RunDecision(Stage.BLOCKED)
    due = _begin(seen, _operation(spec, secrets))
    wait = _wait_for_all(seen, runtime, spec.partitions, now)
    if due.stage is Stage.DUE and status.phase is SetPhase.MOUNT and wait > 0:
        return RunDecision(Stage.BLOCKED, wake_after=wait)
    return due


def _over(seen: ObservedSet) -> RunDecision | None:
    """What the status remembers, also when the bus has lost it."""
    synced = seen.status.condition(Cond.SYNCED)
    if synced is None or synced.status != "True":
        return None
    if synced.reason == Reason.NOT_NEEDED:
        return RunDecision(Stage.NOT_NEEDED)
    return RunDecision(Stage.DONE, state=seen.runs.get(seen.status.sync_job))


def _wait_for_all(seen: ObservedSet, runtime: Runtime, partitions: int, now: datetime) -> float:
    """Seconds; the work is split by partition when it starts, so all of them should be there."""
    if runtime.ready_prefix(partitions) == partitions:
        return 0.0
    mounted = seen.status.condition(Cond.MOUNTED)
    return SPREAD_SECONDS - age(mounted.last_transition_time if mounted else "", now)


def _operation(spec: SetSpec, secrets: SetSecrets) -> SyncOperation:
    operation = sync_operation(SyncOptions(), spec.source.uri if spec.source else "")
    return operation.model_copy(update={"secret": RUNTIME_PREFIX if secrets.source else ""})


def _follow(
    seen: ObservedSet, spec: SetSpec, secrets: SetSecrets | None, runtime: Runtime, now: datetime
) -> RunDecision:
    """The run in the status: it has ended, or its record must be on the bus."""
    run = seen.status.sync_job
    state = seen.runs.get(run)
    if state is not None and is_ended(state):
        stage = Stage.DONE if state.phase is RunPhase.SUCCEEDED else Stage.FAILED
        return RunDecision(stage, state=state)
    if secrets is None:
        return RunDecision(Stage.RUNNING, state=state)
    partitions = max(1, runtime.ready_prefix(spec.partitions))
    record = make_run(seen.sample_set.identity, run, partitions, _operation(spec, secrets), now)
    return RunDecision(Stage.RUNNING, actions=(WriteRun(record),), state=state)


def _begin(seen: ObservedSet, operation: SyncOperation) -> RunDecision:
    """The run id is derived from the request: the same id again means no change since the run failed."""
    status = seen.status
    attempt = status.attempt(SampleSetSyncFailed) + 1
    if status.sync_job and status.sync_job == _run_id(seen, operation, attempt - 1):
        return RunDecision(Stage.FAILED, state=seen.runs.get(status.sync_job))
    forget = (ForgetRun(seen.sample_set.run_key(status.sync_job)),) if status.sync_job else ()
    return RunDecision(Stage.DUE, _run_id(seen, operation, attempt), forget)


def _run_id(seen: ObservedSet, operation: SyncOperation, attempt: int) -> str:
    return run_id(seen.sample_set.uid, "sync", str(attempt), digest(operation), version(seen.source_secret))
