"""Whether what `spec.warmup` asks for is in the caches: what SampleJobs and agents have told since it was.

A warmup is begun by SampleJobs, or when partitions move: nothing here begins one, and no phase depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from dataset_controller.domain.names import Cond
from dataset_controller.domain.runs import digest
from dataset_controller.domain.samplejob.uses import is_any_below
from dataset_controller.domain.sampleset.model import CacheChange, CacheMark, ObservedSet, SetStatus, Warmth
from dataset_controller.domain.sampleset.policies.runs import RunDecision
from dataset_controller.domain.sampleset.runtime import Runtime, cache_measured_at
from dataset_controller.timing import CACHE_SCAN_GRACE_SECONDS
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, RunState, WarmupOperation
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.sizes import iec
from paddlewheel.contracts.stamps import milliseconds_stamp

_WARMED_ONCE = (
    Reason.WARMED,
    Reason.PARTLY_CACHED,
    Reason.PARTLY_WARMED,
    Reason.DATA_CHANGED,
    Reason.CACHE_CLEARED,
    Reason.OPTIONS_CHANGED,
)
"""Reasons of Warmed when the set's own warmup is over: it is not started again for that."""
LEAST_PERCENT = 90
"""Of the bytes that the caches held after the warmup. Agents count each block with what it takes on the disk,
and what jobs read replaces some: less than this has another cause."""
_KEPT: Mapping[str, Sequence[Reason]] = {
    Reason.CACHE_CLEARED: (Reason.DATA_CHANGED,),
    Reason.PARTLY_CACHED: (Reason.PARTLY_WARMED,),
    Reason.WARMED: (Reason.PARTLY_WARMED,),
}
"""By the present reason, what changes nothing about it: the present one says more."""


def with_warmth(
    seen: ObservedSet, status: SetStatus, warmup: RunDecision, runtime: Runtime, now: datetime
) -> SetStatus:
    """Warmed of a set whose own warmup is over."""
    spec = seen.sample_set.spec
    if not was_warmed(status):
        return _with_own_warmup(with_invalidation(seen, status), warmup.state or RunState(), now)
    if spec is None or spec.warmup is None:
        return status
    for change in seen.cache_changes:
        if is_news(change, status):
            status = _with_change(status, change, spec.warmup, now)
    reports = [report for report in runtime.reports if report.partition not in seen.replayed]
    return _with_what_is_left(status, reports, spec.partitions, now)


def with_begin(status: SetStatus, now: datetime) -> SetStatus:
    """Of a set whose own warmup begins. It loads what was there before."""
    return replace(status, cache_mark=CacheMark(milliseconds_stamp(now)), invalidation=None)


def with_invalidation(seen: ObservedSet, status: SetStatus) -> SetStatus:
    """Of a set whose own warmup goes on: what SampleJobs have done beside it. It may have listed or loaded
    before."""
    spec = seen.sample_set.spec
    if spec is None or spec.warmup is None:
        return status
    for change in seen.cache_changes:
        if is_news(change, status):
            status = _noted(status, change, spec.warmup)
    return status


def is_news(change: CacheChange, status: SetStatus) -> bool:
    """The status of a set whose own warmup has begun does not say what this SampleJob has done since. An
    older one never counts, also when the last one is deleted."""
    has_begun = was_warmed(status) or status.cache_mark.at != ""
    return has_begun and change.mark > status.cache_mark


def _noted(status: SetStatus, change: CacheChange, wanted: WarmupOperation) -> SetStatus:
    is_invalidation = change.reason is Reason.CACHE_CLEARED or (
        change.reason is Reason.DATA_CHANGED and _concerns(change, wanted)
    )
    invalidation = change if is_invalidation else status.invalidation
    return replace(status, cache_mark=change.mark, invalidation=invalidation)


def was_warmed(status: SetStatus) -> bool:
    """Its own warmup is over, whatever the caches hold."""
    return status.reason_of(Cond.WARMED) in _WARMED_ONCE


def is_edited(status: SetStatus, wanted: WarmupOperation) -> bool:
    """Of a set whose own warmup is over: it was asked for something else. What an older release has warmed,
    which does not say what that was, is taken for what is wanted."""
    has_changed = status.warmup_digest not in ("", digest_of(wanted))
    return was_warmed(status) and (has_changed or status.reason_of(Cond.WARMED) == Reason.OPTIONS_CHANGED)


def digest_of(wanted: WarmupOperation) -> str:
    """Changes with what is to be in the caches: not when it is only to be loaded faster."""
    return digest(wanted.model_copy(update={"threads": 0}))


def _with_own_warmup(status: SetStatus, state: RunState, now: datetime) -> SetStatus:
    """Its mark stays that of its begin, or of what has come since; one that an older release has begun has
    none."""
    at = milliseconds_stamp(now)
    mark = status.cache_mark if status.cache_mark.at else CacheMark(at)
    status = replace(status, cache_mark=mark, warmed_at=at, warmth=Warmth())
    if (by := status.invalidation) is not None:
        return status.with_condition(Cond.WARMED, False, by.reason, _message(by.reason, by.mark.job), now)
    if state.reason == Reason.PARTLY_CACHED:
        return status.with_condition(Cond.WARMED, False, Reason.PARTLY_CACHED, state.message, now)
    status = replace(status, warmth=Warmth(state.bytes_done))
    return status.with_condition(Cond.WARMED, True, Reason.WARMED, state.message, now)


def _with_change(status: SetStatus, change: CacheChange, wanted: WarmupOperation, now: datetime) -> SetStatus:
    """The same with one change that is news, the older ones before the newer ones."""
    status = _noted(status, change, wanted)
    reason = _outcome(change, wanted, status)
    if reason is None or reason in _KEPT.get(status.reason_of(Cond.WARMED), ()):
        return status
    is_warm = reason is Reason.WARMED
    status = replace(status, warmth=Warmth(change.bytes) if is_warm else Warmth())
    return status.with_condition(Cond.WARMED, is_warm, reason, _message(reason, change.mark.job), now)


def _outcome(change: CacheChange, wanted: WarmupOperation, status: SetStatus) -> Reason | None:
    """What the change makes of a set that was warm; None when it is about other files, or those that were
    there before the last invalidation. A cache without room for a part may have given up the rest for it; of
    one that was not warm, the part says no more."""
    present = status.reason_of(Cond.WARMED)
    match change.reason:
        case Reason.WARMED if _is_outdated(change, status):
            return None
        case Reason.WARMED if not _covers(change, wanted):
            return Reason.PARTLY_WARMED
        case Reason.PARTLY_CACHED if present != Reason.WARMED and not _covers(change, wanted):
            return Reason.PARTLY_WARMED
        case Reason.DATA_CHANGED if not _concerns(change, wanted):
            return None
    return change.reason


def _is_outdated(warmup: CacheChange, status: SetStatus) -> bool:
    """It began before the last invalidation."""
    return status.invalidation is not None and warmup.since < status.invalidation.mark.at


def _covers(change: CacheChange, wanted: WarmupOperation) -> bool:
    """A warmup has loaded all that is wanted, and where. Nobody knows here what a list of files names."""
    if change.sampler != wanted.sampler:
        return False
    if change.file or wanted.file:
        return change.file == wanted.file or (not change.file and "" in change.paths)
    return all(is_any_below({path}, change.paths) for path in wanted.paths or [""])


def _concerns(change: CacheChange, wanted: WarmupOperation) -> bool:
    tops = frozenset([""] if wanted.file or not wanted.paths else wanted.paths)
    return is_any_below(change.paths, tops) or is_any_below(tops, change.paths)


def _message(reason: Reason, job: str) -> str:
    return {
        Reason.WARMED: f"by SampleJob {job}",
        Reason.PARTLY_CACHED: f"by SampleJob {job}, whose message has the share",
        Reason.PARTLY_WARMED: f"SampleJob {job} has warmed less than spec.warmup asks for",
        Reason.DATA_CHANGED: f"SampleJob {job} has copied files into the set; one of type warmup loads them",
        Reason.CACHE_CLEARED: f"SampleJob {job} has emptied the cache; one of type warmup fills it again",
    }[reason]


def _with_what_is_left(
    status: SetStatus, reports: Sequence[NodeStatus], partitions: int, now: datetime
) -> SetStatus:
    """Other data may displace what was warmed. A number of bytes does not tell that it is there again: only a
    warmup looks up of which files they are."""
    warmth, mine = status.warmth, [r for r in reports if r.partition < partitions]
    since = max(status.warmed_at, status.cache_mark.at)
    if not status.holds(Cond.WARMED) or len(mine) < partitions or not all(_counts(r, since) for r in mine):
        return status
    cached = min(warmth.bytes, sum(r.cached_bytes for r in mine))
    if not warmth.held:
        return replace(status, warmth=replace(warmth, held=cached))
    if 100 * cached >= LEAST_PERCENT * warmth.held or not all(map(_is_settled, mine)):
        return status
    share = f"{iec(cached)} of {iec(warmth.held)} are in the caches"
    message = f"other data has displaced some of it: {share}; a SampleJob of type warmup loads it again"
    status = replace(status, warmth=Warmth())
    return status.with_condition(Cond.WARMED, False, Reason.PARTLY_CACHED, message, now)


def _counts(report: NodeStatus, since: str) -> bool:
    """What it says of the cache was measured after the warmup."""
    at = cache_measured_at(report)
    is_new = at is not None and milliseconds_stamp(at) >= since
    return is_new and report.mounted and not report.figures_problem


def _is_settled(report: NodeStatus) -> bool:
    """Both times are by the clock of its node."""
    at, changed_at = report.cached_at, report.mount_changed_at
    if at is None or changed_at is None:
        return False
    return (at - changed_at).total_seconds() >= CACHE_SCAN_GRACE_SECONDS
