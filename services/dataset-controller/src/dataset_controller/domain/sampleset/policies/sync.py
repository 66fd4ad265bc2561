"""The set's first sync: started in phase Mount, after a failure only when something has changed."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.actions import ForgetRun
from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.operations import sync_operation
from dataset_controller.domain.runs import RUNTIME_PREFIX, digest, is_ended, make_run, run_id
from dataset_controller.domain.sampleset.model import ObservedSet, SetSpec
from dataset_controller.domain.sampleset.policies.runs import RunDecision, Stage, cancels_of, requested
from dataset_controller.domain.sampleset.policies.runtime_secret import SetSecrets
from dataset_controller.domain.secrets import version
from paddlewheel.contracts.crds import SyncOptions
from paddlewheel.contracts.generated.cache_v1 import RunPhase, SyncOperation
from paddlewheel.contracts.generated.datasets_v1 import SampleSetSyncFailed
from paddlewheel.contracts.reasons import Reason


def decide_sync(seen: ObservedSet, spec: SetSpec, secrets: SetSecrets | None, now: datetime) -> RunDecision:
    """How far the first sync has come. It waits for no partition: others do the work of one that is away.

    Args:
        secrets: None while the user's Secrets are invalid: nothing starts then.
    """
    status = seen.status
    if (over := _over(seen)) is not None:
        return over
    if status.phase is SetPhase.SYNCING and status.sync_job:
        return _follow(seen, spec, secrets, now)
    if spec.no_sync:
        return RunDecision(Stage.NOT_NEEDED)
    if secrets is None or spec.source is None:
        return RunDecision(Stage.BLOCKED)
    return _begin(seen, _operation(spec, secrets))


def _over(seen: ObservedSet) -> RunDecision | None:
    """What the status remembers, also when the bus has lost it."""
    synced = seen.status.condition(Cond.SYNCED)
    if synced is None or synced.status != "True":
        return None
    if synced.reason == Reason.NOT_NEEDED:
        return RunDecision(Stage.NOT_NEEDED)
    return RunDecision(Stage.DONE, state=seen.runs.get(seen.status.sync_job))


def _operation(spec: SetSpec, secrets: SetSecrets) -> SyncOperation:
    operation = sync_operation(SyncOptions(), spec.source.uri if spec.source else "")
    return operation.model_copy(update={"secret": RUNTIME_PREFIX if secrets.source else ""})


def _follow(seen: ObservedSet, spec: SetSpec, secrets: SetSecrets | None, now: datetime) -> RunDecision:
    """The run in the status: it has ended, or its record must be on the bus."""
    run = seen.status.sync_job
    state = seen.runs.get(run)
    if state is not None and is_ended(state):
        stage = Stage.DONE if state.phase is RunPhase.SUCCEEDED else Stage.FAILED
        return RunDecision(stage, state=state)
    if secrets is None:
        return RunDecision(Stage.RUNNING, actions=cancels_of(seen, run), state=state)
    record = make_run(seen.sample_set.identity, run, spec.partitions, _operation(spec, secrets), now)
    return RunDecision(Stage.RUNNING, actions=requested(seen, record), state=state)


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
