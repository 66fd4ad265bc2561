"""The life cycle of a run: what each agent does, its progress, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from cache_runtime.domain.digest import digest_of, sum_of
from cache_runtime.domain.model import Outcome, RunRecords
from cache_runtime.timing import (
    HEARTBEAT_INTERVAL_SECONDS,
    MASTER_TIMEOUT_SECONDS,
    UNMOUNTED_AGENT_TIMEOUT_SECONDS,
)
from paddlewheel.contracts.generated.cache_v1 import (
    Chunk,
    ChunkLimits,
    Judgement,
    PartitionState,
    PartitionTotals,
    RunPhase,
    RunState,
)
from paddlewheel.contracts.rates import seconds_left
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.sizes import iec

PARTITIONS_PER_SECOND = 25
"""Every agent hears every state, with figures of every partition: for many it is written less often."""
MESSAGE_MAX = 300
"""Characters of what a partition says."""
MAX_CRASHES = 5
"""Masters that an unexpected error may end before the run fails."""
NAMED = 20
"""Files that a message names at most."""
_FINAL = (RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.CANCELLED)


class Claim(Enum):
    """Whether an agent claims the master role."""

    NONE = "none"
    CREATE = "create"
    TAKE_OVER = "take over"


@dataclass(frozen=True)
class Candidate:
    """This agent as a candidate for the master role. `is_master` = this process holds it already,
    `has_lost_it` = this process held it, and another has taken it, or may; `is_mounted` = it can list."""

    pod: str
    is_master: bool = False
    has_lost_it: bool = False
    is_mounted: bool = True


@dataclass(frozen=True)
class Duties:
    """What this agent has to do for a run now."""

    claim: Claim = Claim.NONE
    work: bool = False
    """Execute chunks."""
    over: bool = False
    """The run has ended: stop all work for it."""


@dataclass(frozen=True)
class Ending:
    """How a run ends."""

    phase: RunPhase
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class Problem:
    """Why a run waits: reason in CamelCase, and what a person may want to know."""

    reason: str
    message: str


def repeated(reason: str, message: str) -> Problem:
    """Of what is tried again and again."""
    return Problem(reason, f"{message or reason}; tried again")


@dataclass(frozen=True)
class Progress:
    """Sums over all partitions."""

    files: int
    bytes: int
    chunks: int
    cached_bytes: int
    files_failed: int
    failed_examples: tuple[str, ...]
    notes: tuple[str, ...] = ()
    digest: int = 0
    uncounted: int = 0
    """Partitions whose caches could not be looked up at the end."""
    kept: int = 0
    """Files that were left as they were found."""
    uncompared: int = 0
    """The same without directories, and with those that an earlier try of their chunk may have copied."""


def decide(run: RunRecords, agent: Candidate, silent_for: float) -> Duties:
    """Decide what this agent does.

    Args:
        silent_for: seconds since this agent last observed a change of the state, by its own clock.
    """
    if run.spec is None or (is_over(run) and not is_closing(run)):
        return Duties(over=True)
    claim = _claim(run, agent, silent_for)
    if is_closing(run):
        return Duties(claim=claim, over=True)
    return Duties(claim=claim, work=not run.cancelled)


def _claim(run: RunRecords, agent: Candidate, silent_for: float) -> Claim:
    if agent.is_master:
        return Claim.NONE
    is_able = agent.is_mounted or not _is_to_be_listed(run)
    if run.state is None:
        return Claim.CREATE if is_able or silent_for > UNMOUNTED_AGENT_TIMEOUT_SECONDS else Claim.NONE
    # Two processes of one pod name must not take the role from each other for ever.
    held_before_restart = run.state.master == agent.pod and not agent.has_lost_it
    # Whoever has given it up leaves it to others for a while.
    is_free = not run.state.master and not agent.has_lost_it
    is_due = is_able and (held_before_restart or is_free)
    is_silent = silent_for > (MASTER_TIMEOUT_SECONDS if is_able else UNMOUNTED_AGENT_TIMEOUT_SECONDS)
    return Claim.TAKE_OVER if is_due or is_silent else Claim.NONE


def _is_to_be_listed(run: RunRecords) -> bool:
    is_judged = run.state is not None and (run.state.judgement is not None or has_ended(run.state))
    return not is_judged and not run.cancelled


def claimed(
    current: RunState | None, run_id: str, pod: str, now: datetime, limits: ChunkLimits | None = None
) -> RunState:
    """The state after `pod` takes the master role: the first one, or the next term of the current one.

    What is judged, or has ended, stays as it is, and so does by what its chunks are cut.
    """
    base = current or RunState(run_id=run_id, started_at=now, phase=RunPhase.RUNNING)
    listed = base.listed and (base.judgement is not None or has_ended(base))
    update = {"master": pod, "term": base.term + 1, "heartbeat": now, "listed": listed}
    return base.model_copy(update={**update, "limits": base.limits or limits})


def judged(state: RunState, ending: Ending, now: datetime) -> RunState:
    """The state of a run whose chunks are all done, before what its end requires is done."""
    judgement = Judgement(phase=ending.phase, reason=ending.reason, message=ending.message)
    update = {"judgement": judgement, "reason": "", "message": "", "heartbeat": now, "stand_ins": []}
    return state.model_copy(update=update)


def judgement_of(state: RunState) -> Ending | None:
    """How a run ends whose chunks are all done; None while they are not, or nobody has compared."""
    found = state.judgement
    return Ending(found.phase, found.reason, found.message) if found else None


def ended(state: RunState, ending: Ending, now: datetime) -> RunState:
    """The final state, which is not announced yet."""
    end = {"phase": ending.phase, "reason": ending.reason, "message": ending.message, "judgement": None}
    moment = {"heartbeat": now, "ended_at": now}
    return state.model_copy(update={**end, **moment, "stand_ins": [], "closing": True})


def given_up(state: RunState) -> RunState:
    """The state that no agent leads; whoever can lead may claim the role at once."""
    return state.model_copy(update={"master": ""})


def waiting(state: RunState, problems: Sequence[Problem]) -> RunState:
    """The state of a run that goes on, with what it waits for."""
    reason = problems[0].reason if problems else ""
    return state.model_copy(update={"reason": reason, "message": "; ".join(p.message for p in problems)})


def crashed(state: RunState, error: str) -> RunState:
    """The state after an unexpected error of its master, of which only the type is told: a message may have
    anything in it."""
    crashes = state.crashes + 1
    text = f"{error} in the master of the run, {state.master}: a bug; the log of this pod has the traceback"
    update = {
        "crashes": crashes,
        "reason": Reason.INTERNAL_ERROR,
        "message": f"{text} ({crashes} of {MAX_CRASHES} times)",
    }
    return state.model_copy(update=update)


def pace(partitions: int) -> float:
    """Seconds between two states that differ in figures only."""
    return min(HEARTBEAT_INTERVAL_SECONDS, partitions / PARTITIONS_PER_SECOND)


def is_news(before: RunState, state: RunState) -> bool:
    """Whether agents and people are to hear of it at once: more than figures has changed."""
    if state.listed and state.chunks_total != before.chunks_total:
        return True
    return any(
        getattr(before, name) != getattr(state, name)
        for name in ("phase", "listed", "stand_ins", "reason", "message")
    )


def is_over(run: RunRecords) -> bool:
    """Whether the run has a final state."""
    return run.state is not None and has_ended(run.state)


def is_closing(run: RunRecords) -> bool:
    """Whether it has one, and its end is not announced, or its chunks are still there."""
    return is_over(run) and run.state is not None and run.state.closing


def has_ended(state: RunState) -> bool:
    """Whether it is a final one."""
    return state.phase in _FINAL


def progress(parts: Sequence[PartitionState]) -> Progress:
    """Sum up the records of all partitions."""
    named = [name for part in parts for name in part.failed_examples]
    return Progress(
        files=sum(part.files for part in parts),
        bytes=sum(part.bytes for part in parts),
        chunks=sum(finished_chunks(part) for part in parts),
        cached_bytes=sum(part.cached_bytes for part in parts),
        files_failed=sum(part.files_failed for part in parts),
        failed_examples=tuple(named[:NAMED]),
        notes=tuple([note for part in parts for note in part.notes][:NAMED]),
        digest=sum_of(part.digest for part in parts),
        uncounted=sum(part.uncounted for part in parts),
        kept=sum(part.files_kept for part in parts),
        uncompared=sum(part.files_uncompared for part in parts),
    )


def is_done(listed: bool, totals: Sequence[PartitionTotals], parts: dict[int, PartitionState]) -> bool:
    """Whether every chunk of every partition is recorded as finished."""
    done = {index: finished_chunks(part) for index, part in parts.items()}
    return listed and all(done.get(index, 0) >= total.chunks for index, total in enumerate(totals))


def judge(
    totals: Sequence[PartitionTotals],
    digest: int,
    sums: Progress,
    *,
    fills_cache: bool = False,
    remark: str = "",
) -> Ending:
    """How a run ends when all of its chunks are done.

    Args:
        digest: of all files that were listed. Chunks are known by number, so of two listings that differ, one
            may have been done in part and skipped in the other.
        remark: what a run that succeeded says before its notes.
    """
    if sums.files_failed:
        names = ", ".join(sums.failed_examples)
        return Ending(RunPhase.FAILED, "FilesFailed", f"{sums.files_failed} files could not be done: {names}")
    wanted = sum(total.files for total in totals)
    if sums.files != wanted:
        text = f"{sums.files} of {wanted} files: the files changed while the run was listed; start it again"
        return Ending(RunPhase.FAILED, "FilesChanged", text)
    if sums.digest != digest:
        text = (
            f"{wanted} files were done, and not the same as were listed: the files changed while the run was"
        )
        return Ending(RunPhase.FAILED, "FilesChanged", f"{text} listed, or the release did; start it again")
    if fills_cache and sums.cached_bytes < sums.bytes:
        message = "; ".join(filter(None, (_partly_cached(sums), remark)))
        return Ending(RunPhase.SUCCEEDED, Reason.PARTLY_CACHED, message)
    return Ending(RunPhase.SUCCEEDED, message="; ".join(filter(None, (remark, _listed(sums.notes)))))


def dry_ending(totals: Sequence[PartitionTotals]) -> Ending:
    """The end of a run that only lists."""
    files, size = sum(total.files for total in totals), sum(total.bytes for total in totals)
    count = "1 file" if files == 1 else f"{files:,} files"
    return Ending(
        RunPhase.SUCCEEDED, message=f"dry run: {count} of {iec(size)} in the source, nothing was copied"
    )


def _partly_cached(sums: Progress) -> str:
    share = percent(sums.cached_bytes, sums.bytes)
    held = f"{iec(sums.cached_bytes)} of {iec(sums.bytes)} ({share:g} %) are in the caches at the end"
    if sums.uncounted:
        return f"{held}, as far as is known: those of {sums.uncounted} partitions could not be looked up"
    return f"{held}: they are too small for all of it, or other data has displaced some"


def _listed(notes: Sequence[str]) -> str:
    return "; ".join((*notes, "...") if len(notes) == NAMED else notes)


def with_progress(
    state: RunState, listed: bool, totals: Sequence[PartitionTotals], sums: Progress, *, fills_cache: bool
) -> RunState:
    """The state with the current sums; only an operation that fills the cache has a cached share.

    It is sent to every agent: of partitions it has what they need, and once they need it.
    """
    files_total, bytes_total = sum(total.files for total in totals), sum(total.bytes for total in totals)
    # The size of a file that failed may be unknown.
    cached = min(
        percent(sums.cached_bytes, bytes_total), percent(files_total - sums.files_failed, files_total)
    )
    return state.model_copy(
        update={
            "listed": listed,
            "totals": [PartitionTotals(chunks=total.chunks) for total in totals] if listed else [],
            "files_total": files_total,
            "bytes_total": bytes_total,
            "chunks_total": sum(total.chunks for total in totals),
            "files_done": sums.files,
            "files_kept": sums.kept,
            "files_failed": sums.files_failed,
            "bytes_done": sums.bytes,
            "chunks_done": sums.chunks,
            "cached_percent": cached if listed and fills_cache else 0.0,
        }
    )


def percent(part: int, whole: int) -> float:
    """0 to 100, rounded down to two places so that 100 means all; nothing of nothing is 100."""
    return (part * 10_000 // whole) / 100 if whole else 100.0


def eta(sums: Progress, state: RunState, elapsed: float) -> float:
    """Seconds left, by the bytes, or by the files when those are empty; 0 when unknown."""
    if not state.listed:
        return 0.0
    if state.bytes_total:
        return seconds_left(sums.bytes, state.bytes_total, elapsed)
    return seconds_left(sums.files, state.files_total, elapsed)


def is_recorded(part: PartitionState, number: int) -> bool:
    """Whether the partition's chunk with this id is finished."""
    return number < part.watermark or number in part.chunks


def finished_chunks(part: PartitionState) -> int:
    """How many are."""
    return part.watermark + len(part.chunks)


def next_chunk(part: PartitionState) -> int:
    """The id of the first one that is not finished."""
    return part.watermark


def begun(part: PartitionState, now: datetime) -> PartitionState:
    """The record of a partition whose next chunk is an agent's first one.

    Args:
        now: by the clock of the agent's node, as are the times of what it copies.
    """
    is_first = not part.attempts and not finished_chunks(part)
    earliest = now if is_first else part.begun_at and min(part.begun_at, now)
    return part.model_copy(update={"attempts": part.attempts + 1, "begun_at": earliest})


def is_first_try(part: PartitionState) -> bool:
    """Whether no agent can have done a part of the next chunk before.

    In `attempts` each counts the chunk that it begins with, and no later one, where it may have ended, too.
    """
    return part.attempts <= (0 if part.watermark else 1)


def lacking(part: PartitionState) -> PartitionState:
    """The record of a partition whose next chunk is not there, or cannot be read."""
    return part.model_copy(update={"lacking": part.lacking + 1})


def refused(part: PartitionState, reason: str, message: str) -> PartitionState:
    """The record of a partition whose next chunk waits for something on its agent."""
    return part.model_copy(update={"reason": reason, "message": message[:MESSAGE_MAX]})


def with_chunk(part: PartitionState, chunk: Chunk, outcome: Outcome) -> PartitionState:
    """Record a finished chunk; one that is recorded already changes nothing."""
    if is_recorded(part, chunk.id):
        return part
    watermark, ahead = part.watermark, {*part.chunks, chunk.id}
    while watermark in ahead:
        ahead.remove(watermark)
        watermark += 1
    return part.model_copy(
        update={
            "watermark": watermark,
            "chunks": sorted(ahead),
            "lacking": 0,
            "attempts": 0,
            "reason": "",
            "message": "",
            "files": part.files + outcome.files,
            "files_kept": part.files_kept + outcome.kept,
            "files_uncompared": part.files_uncompared + outcome.uncompared,
            "bytes": part.bytes + outcome.bytes,
            "cached_bytes": _cached_bytes(part, outcome),
            "uncounted": part.uncounted or outcome.uncounted,
            "digest": sum_of((part.digest, digest_of(chunk.files))),
            "files_failed": part.files_failed + len(outcome.failed),
            "failed_examples": [*part.failed_examples, *outcome.failed][:NAMED],
            "notes": [*part.notes, *outcome.notes][:NAMED],
        }
    )


def _cached_bytes(part: PartitionState, outcome: Outcome) -> int:
    if outcome.recount is not None:
        return min(part.cached_bytes, outcome.recount)
    return part.cached_bytes + outcome.cached_bytes


def all_failed(chunk: Chunk, reason: str) -> Outcome:
    """The chunk failed as a whole. Of files that cannot be recounted, none is known to be cached."""
    if not chunk.files:
        return Outcome(recount=0, uncounted=True)
    return Outcome(failed=tuple(f"{entry.path}: {reason}" for entry in chunk.files))
