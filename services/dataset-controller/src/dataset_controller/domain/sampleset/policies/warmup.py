"""The set's own warmup (`spec.warmup`), on complete partitions; a failed one is tried again calmly."""

from __future__ import annotations

from datetime import datetime

from dataset_controller.domain.actions import ForgetRun, WriteRun
from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.runs import digest, is_ended, make_run, run_id
from dataset_controller.domain.sampleset.model import ObservedSet
from dataset_controller.domain.sampleset.policies.own_runs import RunDecision, Standing
from dataset_controller.domain.sampleset.spec import SetSpec
from dataset_controller.domain.sampleset.world import World
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunState, WarmupOperation

RETRY_SECONDS = 30.0
RETRY_CAP_SECONDS = 600.0
ATTEMPTS_MAX = 64


def decide_warmup(seen: ObservedSet, spec: SetSpec, world: World, now: datetime) -> RunDecision:
    """Where the warmup stands; a cancelled one counts as over, somebody wanted it so."""
    status = seen.status
    if spec.warmup is None:
        return RunDecision(Standing.NOT_NEEDED)
    state = seen.runs.get(status.warmup_job)
    if status.journal.holds(Cond.WARMED):
        return RunDecision(Standing.DONE, status.warmup_job, state=state)
    attempt = _attempt(seen, spec.warmup)
    if attempt is not None:
        return _follow(seen, spec, spec.warmup, attempt, now)
    if status.phase not in (SetPhase.PARTIAL_READY, SetPhase.READY) or not world.is_complete(spec.partitions):
        return RunDecision(Standing.BLOCKED)
    forget = (ForgetRun(seen.run_key(status.warmup_job)),) if status.warmup_job else ()
    return RunDecision(Standing.DUE, _run_id(seen, spec.warmup, 0), forget)


def _follow(
    seen: ObservedSet, spec: SetSpec, operation: WarmupOperation, attempt: int, now: datetime
) -> RunDecision:
    run = seen.status.warmup_job
    state = seen.runs.get(run)
    if state is None or not is_ended(state):
        record = make_run(seen.identity, run, spec.partitions, operation, now)
        return RunDecision(Standing.RUNNING, run, (WriteRun(record),), state)
    if state.phase is RunPhase.SUCCEEDED:
        return RunDecision(Standing.DONE, run, state=state)
    if state.phase is RunPhase.CANCELLED:
        return RunDecision(Standing.NOT_NEEDED, run, state=state)
    wait = _wait(state, attempt, now)
    if wait > 0:
        return RunDecision(Standing.FAILED, run, state=state, wake_after=wait)
    return RunDecision(
        Standing.DUE, _run_id(seen, operation, attempt + 1), (ForgetRun(seen.run_key(run)),), state
    )


def _wait(state: RunState, attempt: int, now: datetime) -> float:
    """Seconds until the next try: 30, 60, 120 ... 600."""
    since = (now - state.ended_at).total_seconds() if state.ended_at else RETRY_CAP_SECONDS
    return float(min(RETRY_SECONDS * 2.0 ** min(attempt, 8), RETRY_CAP_SECONDS)) - since


def _attempt(seen: ObservedSet, operation: WarmupOperation) -> int | None:
    """Which attempt of these options the status names; None when it names none (or other options)."""
    current = seen.status.warmup_job
    if not current:
        return None
    return next((n for n in range(ATTEMPTS_MAX) if _run_id(seen, operation, n) == current), None)


def _run_id(seen: ObservedSet, operation: WarmupOperation, attempt: int) -> str:
    return run_id(seen.uid, "warmup", str(attempt % ATTEMPTS_MAX), digest(operation))
