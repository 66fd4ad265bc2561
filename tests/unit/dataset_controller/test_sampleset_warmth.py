"""Warmed of a set that was warm: what jobs, and the bytes that agents report, make of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import NOW, OWNER_UID, make_observed

from dataset_controller.domain.sampleset.model import CacheChange, CacheMark, SetStatus, Warmth
from dataset_controller.domain.sampleset.policies.runs import RunDecision, Stage
from dataset_controller.domain.sampleset.policies.warmth import with_warmth
from dataset_controller.domain.sampleset.runtime import runtime_of
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, RunState, SamplerOrder
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import milliseconds_stamp
from paddlewheel.testkit.samplesets import MIB, make_report

MARK = CacheMark(milliseconds_stamp(NOW - timedelta(minutes=10)))
NOTHING = Warmth()
LONG_AGO = NOW - timedelta(hours=1)


def report(partition: int, cached: int, **values: Any) -> NodeStatus:
    values = {"cached_bytes": cached * MIB, "mount_changed_at": LONG_AGO, **values}
    return make_report(OWNER_UID, partition, NOW, **values)


def warm(reason: Reason = Reason.WARMED, warmth: Warmth = NOTHING) -> SetStatus:
    warmed = Condition("Warmed", str(reason is Reason.WARMED), reason, "")
    return SetStatus(conditions=(warmed,), cache_mark=MARK, warmth=warmth)


def look(
    status: SetStatus,
    *reports: NodeStatus,
    changes: tuple[CacheChange, ...] = (),
    warmup: dict[str, Any] | None = None,
    replayed: frozenset[int] = frozenset(),
) -> SetStatus:
    spec = {"partitions": 2, "warmup": warmup or {"paths": ["train", "val"]}}
    seen = make_observed("Ready", ready=2, spec=spec, reports=reports, cache_changes=changes)
    seen = replace(seen, replayed=replayed)
    done = RunDecision(Stage.DONE, state=RunState(bytes_done=20 * MIB))
    return with_warmth(seen, status, done, runtime_of(seen, NOW), NOW)


def told(status: SetStatus) -> tuple[str, str, str]:
    warmed = status.condition("Warmed")
    assert warmed is not None
    return warmed.status, warmed.reason, warmed.message


STILL_WARM = ("True", "Warmed", "")


def test_what_the_caches_hold_after_the_warmup_is_recorded_once() -> None:
    first = look(SetStatus())
    assert told(first) == STILL_WARM
    assert first.warmth == Warmth(20 * MIB)
    now = replace(first, cache_mark=MARK, warmed_at=MARK.at)
    assert look(now, report(0, 10)).warmth.held == 0, "a partition has not reported"
    assert look(now, report(0, 3), report(1, 4)).warmth == Warmth(20 * MIB, 7 * MIB)
    assert look(now, report(0, 99), report(1, 99)).warmth == Warmth(20 * MIB, 20 * MIB), "of other data, too"
    held = replace(now, warmth=Warmth(20 * MIB, 20 * MIB))
    assert look(held, report(0, 9), report(1, 10)) == held, "less, as jobs read"


def test_a_set_whose_caches_hold_clearly_less_is_not_warm_until_it_is_warmed_again() -> None:
    evicted = look(warm(warmth=Warmth(20 * MIB, 20 * MIB)), report(0, 7), report(1, 10))
    message = (
        "other data has displaced some of it: 17 MiB of 20 MiB are in the caches;"
        " a SampleJob of type warmup loads it again"
    )
    assert told(evicted) == ("False", "PartlyCached", message)
    assert look(evicted, report(0, 10), report(1, 10)) == evicted
    assert look(evicted, report(0, 2), report(1, 2)) == evicted, "one write"
    again = CacheChange(CacheMark(milliseconds_stamp(NOW), "fill"), Reason.WARMED, frozenset([""]), bytes=5)
    filled = look(evicted, changes=(again,))
    assert (told(filled)[1], filled.warmth) == ("Warmed", Warmth(5))


@pytest.mark.parametrize(
    "values",
    [
        {"mounted": False},
        {"mount_changed_at": NOW - timedelta(seconds=299)},
        {"mount_changed_at": None},
        {"figures_problem": "cache: Input/output error"},
    ],
    ids=["no mount", "mounted just now: the client still finds what it has", "old agent", "not measured"],
)
def test_a_partition_that_cannot_tell_what_it_holds_makes_no_set_cold(values: dict[str, Any]) -> None:
    held = warm(warmth=Warmth(20 * MIB, 20 * MIB))
    assert look(held, report(0, 10), report(1, 0, **values)) == held


def test_reports_from_before_the_end_of_the_warmup_do_not_count() -> None:
    late = replace(
        warm(warmth=Warmth(20 * MIB)), cache_mark=CacheMark(milliseconds_stamp(NOW + timedelta(1)))
    )
    assert look(late, report(0, 1), report(1, 1)) == late


def test_figures_that_were_measured_during_the_warmup_do_not_count() -> None:
    """Whatever it is that the set took note of last."""
    begun = replace(SetStatus(), cache_mark=CacheMark(milliseconds_stamp(NOW - timedelta(minutes=5))))
    ended = look(begun)
    assert (told(ended), ended.cache_mark) == (STILL_WARM, begun.cache_mark)
    ended = replace(ended, warmed_at=milliseconds_stamp(NOW - timedelta(minutes=1)))
    assert look(ended, report(0, 1, cached_age=61), report(1, 1)) == ended
    assert look(ended, report(0, 9, cached_age=60), report(1, 9)).warmth.held == 18 * MIB


@pytest.mark.parametrize("warmth", [Warmth(20 * MIB), Warmth(20 * MIB, 20 * MIB)], ids=["first", "later"])
def test_figures_that_were_measured_before_the_end_of_the_warmup_do_not_count(warmth: Warmth) -> None:
    """Reports come in time, and repeat them while a disk is slow."""
    held = warm(warmth=warmth)
    assert look(held, report(0, 1, cached_age=601), report(1, 1)) == held
    unmeasured = report(0, 1, cached_at=None, cached_age=0, figures_problem="cache: not measured yet")
    assert look(held, unmeasured, report(1, 1)) == held
    assert look(held, report(0, 1), report(1, 1)) != held


@pytest.mark.parametrize("cached_at", [None, NOW])
def test_figures_of_which_an_older_agent_does_not_say_how_old_they_are_do_not_count(
    cached_at: datetime | None,
) -> None:
    for warmth in (Warmth(20 * MIB), Warmth(20 * MIB, 20 * MIB)):
        of_older_agent = report(0, 1, cached_at=cached_at, cached_age=0)
        assert look(warm(warmth=warmth), of_older_agent, report(1, 1)).warmth == warmth


def test_figures_that_the_bus_has_kept_do_not_count() -> None:
    """The report may be of any age, and that of its figures is as of then."""
    held = warm(warmth=Warmth(20 * MIB, 20 * MIB))
    assert look(held, report(0, 1), report(1, 1), replayed=frozenset([1])) == held


@pytest.mark.parametrize("wrong", [timedelta(minutes=5), -timedelta(hours=1)], ids=["ahead", "behind"])
def test_the_clock_of_a_node_does_not_matter(wrong: timedelta) -> None:
    clock = {"cached_at": NOW + wrong, "mount_changed_at": LONG_AGO + wrong}
    first = warm(warmth=Warmth(20 * MIB))
    assert look(first, report(0, 3, cached_age=601, **clock), report(1, 4)) == first
    held = warm(warmth=Warmth(20 * MIB, 20 * MIB))
    assert told(look(held, report(0, 0, **clock), report(1, 10)))[1] == "PartlyCached"


def test_figures_from_before_a_new_mount_has_settled_do_not_count() -> None:
    held = warm(warmth=Warmth(20 * MIB, 20 * MIB))
    early = report(
        0,
        1,
        mount_changed_at=NOW - timedelta(minutes=6),
        cached_at=NOW - timedelta(minutes=2),
        cached_age=120,
    )
    assert look(held, early, report(1, 1)) == held


def test_a_set_of_which_nobody_knows_how_much_was_warmed_stays_warm() -> None:
    assert told(look(warm(), report(0, 0), report(1, 0))) == STILL_WARM


def change(reason: Reason, *paths: str, file: str = "", sampler: SamplerOrder | None = None) -> CacheChange:
    return CacheChange(CacheMark(milliseconds_stamp(NOW), "j"), reason, frozenset(paths), file, sampler)


@pytest.mark.parametrize(
    ("before", "news", "after"),
    [
        (Reason.WARMED, change(Reason.DATA_CHANGED, ""), "DataChanged"),
        (Reason.WARMED, change(Reason.DATA_CHANGED, "train/a"), "DataChanged"),
        (Reason.WARMED, change(Reason.DATA_CHANGED, "test"), "Warmed"),
        (Reason.CACHE_CLEARED, change(Reason.DATA_CHANGED, ""), "CacheCleared"),
        (Reason.WARMED, change(Reason.WARMED, "train"), "Warmed"),
        (Reason.PARTLY_CACHED, change(Reason.WARMED, "train"), "PartlyCached"),
        (Reason.CACHE_CLEARED, change(Reason.WARMED, "train"), "PartlyWarmed"),
        (Reason.DATA_CHANGED, change(Reason.WARMED, "train", "val/a"), "PartlyWarmed"),
        (Reason.DATA_CHANGED, change(Reason.WARMED), "PartlyWarmed"),
        (Reason.DATA_CHANGED, change(Reason.WARMED, "", file="list"), "PartlyWarmed"),
        (Reason.DATA_CHANGED, change(Reason.WARMED, "train", "val"), "Warmed"),
        (Reason.CACHE_CLEARED, change(Reason.WARMED, ""), "Warmed"),
        (Reason.WARMED, change(Reason.PARTLY_CACHED, "test"), "PartlyCached"),
        (Reason.CACHE_CLEARED, change(Reason.PARTLY_CACHED, "train", "val"), "PartlyCached"),
        (Reason.CACHE_CLEARED, change(Reason.PARTLY_CACHED, "train"), "PartlyWarmed"),
        (Reason.DATA_CHANGED, change(Reason.PARTLY_CACHED, "", file="list"), "PartlyWarmed"),
        (Reason.PARTLY_WARMED, change(Reason.PARTLY_CACHED, "val"), "PartlyWarmed"),
        (Reason.WARMED, change(Reason.CACHE_CLEARED), "CacheCleared"),
    ],
)
def test_a_job_changes_what_is_said_of_the_caches(before: Reason, news: CacheChange, after: str) -> None:
    status = look(warm(before), changes=(news,))
    assert told(status)[1] == after
    assert status.cache_mark == news.mark
    assert look(status, changes=(news,)) == status


def test_the_share_of_a_part_is_not_said_to_be_that_of_all_that_is_wanted() -> None:
    low = Condition("Warmed", "False", Reason.PARTLY_CACHED, "7 of 20 MiB are in the caches")
    before = SetStatus(conditions=(low,), cache_mark=MARK)
    news = change(Reason.PARTLY_CACHED, "train/a")
    assert look(before, changes=(news,)) == replace(before, cache_mark=news.mark)


@pytest.mark.parametrize(
    ("since", "reason", "after"),
    [
        (3, Reason.DATA_CHANGED, "DataChanged"),
        (3, Reason.CACHE_CLEARED, "CacheCleared"),
        (5, Reason.DATA_CHANGED, "Warmed"),
        (6, Reason.CACHE_CLEARED, "Warmed"),
    ],
)
def test_a_warmup_makes_a_set_warm_only_if_it_began_after_the_last_change(
    since: int, reason: Reason, after: str
) -> None:
    """All of it is seen at once, as after a restart."""

    def at(second: int) -> str:
        return milliseconds_stamp(NOW + timedelta(seconds=second))

    sync = CacheChange(CacheMark(at(5), "mirror"), reason, frozenset(["train"]))
    elsewhere = CacheChange(CacheMark(at(7), "other"), Reason.DATA_CHANGED, frozenset(["test"]))
    fill = CacheChange(CacheMark(at(9), "fill"), Reason.WARMED, frozenset([""]), since=at(since))
    assert told(look(warm(), changes=(sync, elsewhere, fill)))[1] == after


SAMPLED = {"strategyName": "sampler", "sampler": {"batchSize": 64, "epoch": 3}}


@pytest.mark.parametrize(
    ("wanted", "news", "after"),
    [
        ({"paths": ["."]}, change(Reason.WARMED, "train"), "PartlyWarmed"),
        ({"paths": ["."]}, change(Reason.WARMED, ""), "Warmed"),
        ({"file": "list"}, change(Reason.WARMED, "", file="list"), "Warmed"),
        ({"file": "list"}, change(Reason.WARMED, "", file="other"), "PartlyWarmed"),
        ({"file": "list"}, change(Reason.WARMED, ""), "Warmed"),
        ({"file": "list"}, change(Reason.WARMED, "train"), "PartlyWarmed"),
        ({"file": "list"}, change(Reason.DATA_CHANGED, "train"), "DataChanged"),
        (SAMPLED, change(Reason.WARMED, "", sampler=SamplerOrder(batch_size=64, epoch=3)), "Warmed"),
        (SAMPLED, change(Reason.WARMED, "", sampler=SamplerOrder(batch_size=64, epoch=9)), "PartlyWarmed"),
        (SAMPLED, change(Reason.WARMED, ""), "PartlyWarmed"),
        ({}, change(Reason.WARMED, "", sampler=SamplerOrder(batch_size=64, epoch=3)), "PartlyWarmed"),
    ],
)
def test_lists_the_whole_set_and_orders_are_compared_as_what_they_are(
    wanted: dict[str, Any], news: CacheChange, after: str
) -> None:
    before = warm(Reason.WARMED if news.reason is Reason.DATA_CHANGED else Reason.CACHE_CLEARED)
    assert told(look(before, changes=(news,), warmup=wanted))[1] == after
