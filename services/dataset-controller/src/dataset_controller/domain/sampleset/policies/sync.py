"""The set's first sync: started in phase Mount, after a failure only when something has changed.

An attempt that copies from another source than one before it replaces all files: of those with the same
size nobody knows of which source they are. Comparing them would read all of the source, too, and all that
is there: with files of 8 MB it took three to six times as long.
"""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.actions import ForgetRun
from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.operations import sync_operation
from dataset_controller.domain.runs import RUNTIME_PREFIX, digest, is_ended, make_run, run_id
from dataset_controller.domain.sampleset.model import ObservedSet, SetSpec, SetStatus, SyncOrigin
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
    return _begin(seen, spec.source.uri, secrets)


def _over(seen: ObservedSet) -> RunDecision | None:
    """What the status remembers, also when the bus has lost it. A set that went on without a first sync is in
    use: what it copies later, and who waits for that, is for SampleJobs to say."""
    synced = seen.status.condition(Cond.SYNCED)
    if synced is None or synced.status != "True":
        return None
    if synced.reason == Reason.NOT_NEEDED:
        return RunDecision(Stage.NOT_NEEDED)
    return RunDecision(Stage.DONE, state=seen.runs.get(seen.status.sync_job))


def _operation(origin: SyncOrigin, secrets: SetSecrets) -> SyncOperation:
    operation = sync_operation(SyncOptions(force_update=origin.overwrites), origin.uri)
    return operation.model_copy(update={"secret": RUNTIME_PREFIX if secrets.source else ""})


def _follow(seen: ObservedSet, spec: SetSpec, secrets: SetSecrets | None, now: datetime) -> RunDecision:
    """The run in the status: it has ended, or its record must be on the bus. It keeps the source that it was
    begun with: another one in the spec is of no account before this run has failed."""
    run = seen.status.sync_job
    state = seen.runs.get(run)
    if state is not None and is_ended(state):
        stage = Stage.DONE if state.phase is RunPhase.SUCCEEDED else Stage.FAILED
        return RunDecision(stage, state=state)
    if secrets is None:
        return RunDecision(Stage.RUNNING, actions=cancels_of(seen, run), state=state)
    in_spec = SyncOrigin(spec.source.uri if spec.source else "")
    origin = seen.status.sync_origin if seen.status.sync_origin.uri else in_spec  # of an older release
    record = make_run(seen.sample_set.identity, run, spec.partitions, _operation(origin, secrets), now)
    return RunDecision(Stage.RUNNING, actions=requested(seen, record), state=state)


def _begin(seen: ObservedSet, uri: str, secrets: SetSecrets) -> RunDecision:
    """The run id is derived from the request: the same id again means no change since the run failed."""
    status = seen.status
    attempt = status.attempt(SampleSetSyncFailed) + 1
    same = SyncOrigin(uri, status.sync_origin.overwrites)
    if status.sync_job and status.sync_job == _run_id(seen, _operation(same, secrets), attempt - 1):
        return RunDecision(Stage.FAILED, state=seen.runs.get(status.sync_job))
    origin = _next_origin(status, uri)
    forget = (ForgetRun(seen.sample_set.run_key(status.sync_job)),) if status.sync_job else ()
    return RunDecision(Stage.DUE, _run_id(seen, _operation(origin, secrets), attempt), forget, origin=origin)


def _next_origin(status: SetStatus, uri: str) -> SyncOrigin:
    """Once there were two sources, all attempts overwrite: one that failed has left files of both."""
    is_other = bool(status.sync_job) and status.sync_origin.uri != uri
    return SyncOrigin(uri, status.sync_origin.overwrites or is_other)


def _run_id(seen: ObservedSet, operation: SyncOperation, attempt: int) -> str:
    return run_id(seen.sample_set.uid, "sync", str(attempt), digest(operation), version(seen.source_secret))
