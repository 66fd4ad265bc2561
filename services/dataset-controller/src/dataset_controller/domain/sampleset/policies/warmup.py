"""The set's own warmup (`spec.warmup`), on complete partitions; a failed one is retried with backoff."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from dataset_controller.domain.actions import BUS, RECORD, ForgetRun
from dataset_controller.domain.names import Cond, SetPhase
from dataset_controller.domain.runs import digest, is_ended, make_run, run_id
from dataset_controller.domain.sampleset.model import ObservedSet, SetPlan, SetSpec, SetStatus
from dataset_controller.domain.sampleset.policies.conditions import EDITED, MOVED, was_cancelled
from dataset_controller.domain.sampleset.policies.runs import RunDecision, Stage, requested
from dataset_controller.domain.sampleset.policies.warmth import digest_of, is_edited, was_warmed
from dataset_controller.domain.sampleset.runtime import Runtime
from dataset_controller.timing import LONGEST_WARMUP_RETRY_INTERVAL_SECONDS, WARMUP_RETRY_INTERVAL_SECONDS
from paddlewheel.contracts.generated.cache_v1 import RunPhase, RunState, WarmupOperation
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import Applied

ATTEMPTS_MAX = 64


def decide_warmup(seen: ObservedSet, spec: SetSpec, runtime: Runtime, now: datetime) -> RunDecision:
    """How far the warmup has come; a cancelled one counts as over, for somebody cancelled it on purpose. That
    is recorded: the bus may lose it."""
    if spec.warmup is None:
        return RunDecision(Stage.NOT_NEEDED)
    decision = _decide(seen, spec, spec.warmup, runtime.nodes_of(spec.partitions), now)
    is_recorded = decision.stage in (Stage.DUE, Stage.DONE)
    return replace(decision, digest=digest_of(spec.warmup)) if is_recorded else decision


def _decide(
    seen: ObservedSet, spec: SetSpec, operation: WarmupOperation, nodes: tuple[str, ...], now: datetime
) -> RunDecision:
    status = seen.status
    cause = _cause(status, operation, nodes)
    if was_warmed(status) and not cause:
        return RunDecision(Stage.DONE)
    attempt = None if cause else _attempt(seen, operation)
    if attempt is not None:
        decision = _follow(seen, spec, operation, attempt, now)
        return replace(decision, actions=(*decision.actions, *_forget_before(seen, operation, attempt)))
    is_open = status.phase in (SetPhase.PARTIAL_READY, SetPhase.READY)
    if not is_open or not nodes:
        return RunDecision(Stage.BLOCKED, cause=cause)
    forget = (ForgetRun(seen.sample_set.run_key(status.warmup_job)),) if status.warmup_job else ()
    return replace(_begun_anew(seen, operation, nodes), actions=forget, cause=cause)


def _cause(status: SetStatus, operation: WarmupOperation, nodes: tuple[str, ...]) -> str:
    if is_edited(status, operation):
        return EDITED
    return MOVED if _is_elsewhere(status, nodes) else ""


def _begun_anew(seen: ObservedSet, operation: WarmupOperation, nodes: tuple[str, ...]) -> RunDecision:
    """Never with the id of an earlier one, whose end the bus may still tell of."""
    series = seen.status.warmup_series + 1 if seen.status.warmup_job else 0
    return RunDecision(Stage.DUE, _run_id(seen, _Series(digest(operation), nodes, series), 0), series=series)


def hold_next(before: SetStatus, todo: SetPlan, applied: Applied) -> SetPlan:
    """The id of the next warmup, and that it begins, is recorded once the bus has forgotten the one before:
    with that id the last trace of a run that may go on would be lost."""
    former, status = before.warmup_job, todo.status
    if status is None or former in ("", status.warmup_job) or not _is_left(applied, former):
        return todo
    status = replace(
        status,
        warmup_job=former,
        warmup_series=before.warmup_series,
        warmup_nodes=before.warmup_nodes,
        warmup_digest=before.warmup_digest,
        cache_mark=before.cache_mark,
        invalidation=before.invalidation,
        warmth=before.warmth,
        warmed_at=before.warmed_at,
    ).with_condition_of(before, Cond.WARMED)
    return replace(todo, status=status, requeue_after=applied.retry_after)


def _is_left(applied: Applied, run: str) -> bool:
    """The bus is silent, or refuses to forget the run."""
    return any(t.kind == BUS or (t.kind == RECORD and run in t.key.name) for t in applied.troubles)


def _is_elsewhere(status: SetStatus, nodes: tuple[str, ...]) -> bool:
    """Partitions are on other nodes than those that the warmup was for, or there are more or fewer of them.

    What was emptied or cancelled on purpose stays cold.
    """
    if status.reason_of(Cond.WARMED) in (Reason.CACHE_CLEARED, Reason.CANCELLED):
        return False
    return bool(nodes and status.warmup_nodes) and nodes != status.warmup_nodes


def _follow(
    seen: ObservedSet, spec: SetSpec, operation: WarmupOperation, attempt: int, now: datetime
) -> RunDecision:
    run = seen.status.warmup_job
    state = seen.runs.get(run)
    if was_cancelled(seen.status):
        return RunDecision(Stage.NOT_NEEDED, state=state)
    if state is None or not is_ended(state):
        record = make_run(seen.sample_set.identity, run, spec.partitions, operation, now)
        return RunDecision(Stage.RUNNING, actions=requested(seen, record), state=state)
    if state.phase is RunPhase.SUCCEEDED:
        return RunDecision(Stage.DONE, state=state)
    if state.phase is RunPhase.CANCELLED:
        return RunDecision(Stage.NOT_NEEDED, state=state)
    wait = _wait(state, attempt, now)
    if wait > 0:
        return RunDecision(Stage.FAILED, state=state, wake_after=wait)
    if attempt + 1 == ATTEMPTS_MAX:
        return _begun_anew(seen, operation, seen.status.warmup_nodes)
    series = _series(seen, operation)
    return RunDecision(Stage.DUE, _run_id(seen, series, attempt + 1), series=series.number)


def _forget_before(seen: ObservedSet, operation: WarmupOperation, attempt: int) -> tuple[ForgetRun, ...]:
    """The attempt before the one in the status, if it is still on the bus. Its end is known from there alone,
    so it stays until the retry is recorded: without it the failed run would be requested once more."""
    series = _series(seen, operation)
    if attempt == 0:
        series, attempt = replace(series, number=series.number - 1), ATTEMPTS_MAX
    before = _run_id(seen, series, attempt - 1)
    return (ForgetRun(seen.sample_set.run_key(before)),) if before in seen.runs else ()


def _wait(state: RunState, attempt: int, now: datetime) -> float:
    """Seconds until the next try: 30, 60, 120 ... 600 after the last one."""
    since = (
        (now - state.ended_at).total_seconds() if state.ended_at else LONGEST_WARMUP_RETRY_INTERVAL_SECONDS
    )
    return (
        float(
            min(WARMUP_RETRY_INTERVAL_SECONDS * 2.0 ** min(attempt, 8), LONGEST_WARMUP_RETRY_INTERVAL_SECONDS)
        )
        - since
    )


def _attempt(seen: ObservedSet, operation: WarmupOperation) -> int | None:
    """The attempt of these options that the status names; None when it names none, or other options."""
    current = seen.status.warmup_job
    if not current:
        return None
    series = _series(seen, operation)
    return next((n for n in range(ATTEMPTS_MAX) if _run_id(seen, series, n) == current), None)


@dataclass(frozen=True)
class _Series:
    """Attempts at one warmup. The first series of a set has no number in its ids, as in older releases."""

    wanted: str
    nodes: tuple[str, ...]
    number: int


def _series(seen: ObservedSet, operation: WarmupOperation) -> _Series:
    """The one in the status, if it has these options."""
    return _Series(digest(operation), seen.status.warmup_nodes, seen.status.warmup_series)


def _run_id(seen: ObservedSet, series: _Series, attempt: int) -> str:
    number = (f"series {series.number}",) if series.number else ()
    return run_id(seen.sample_set.uid, "warmup", str(attempt), series.wanted, *series.nodes, *number)
