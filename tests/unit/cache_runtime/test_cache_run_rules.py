"""What each agent does for a run, its progress, and how it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_runtime.domain.chunking import Limits, Splitter, split
from cache_runtime.domain.model import File, Outcome, RunRecords
from cache_runtime.domain.runs import (
    Candidate,
    Claim,
    Duties,
    Ending,
    all_failed,
    begun,
    claimed,
    decide,
    dry_ending,
    ended,
    eta,
    finished_chunks,
    given_up,
    is_done,
    is_news,
    is_recorded,
    judge,
    judged,
    judgement_of,
    lacking,
    pace,
    percent,
    progress,
    with_chunk,
    with_progress,
)
from cache_runtime.operations.clear import partitions_to_clear
from cache_runtime.operations.sync import bandwidth_share, copy_time
from cache_runtime.publication import pack, unpack
from paddlewheel.contracts.generated.cache_v1 import (
    Chunk,
    ClearOperation,
    FileEntry,
    PartitionState,
    PartitionTotals,
    RunPhase,
    RunSpec,
    RunState,
    StandIn,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.contracts.wire import to_json

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = RunSpec(run_id="r", partitions=2, warmup=WarmupOperation())


LATER = NOW + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("attempts", "before", "now", "expected"),
    [(0, None, NOW, NOW), (1, LATER, NOW, NOW), (1, NOW, LATER, NOW), (1, None, NOW, None)],
    ids=["first", "with a clock that is behind", "with one that is ahead", "after one that does not say so"],
)  # fmt: skip
def test_the_work_on_a_partition_began_when_the_first_agent_by_its_clock_did(
    attempts: int, before: datetime | None, now: datetime, expected: datetime | None
) -> None:
    # An agent that found no chunk has written the record, and begun nothing.
    part = begun(lacking(PartitionState(agent="a", begun_at=before, attempts=attempts)), now)
    assert (part.begun_at, part.attempts) == (expected, attempts + 1)


def test_when_chunks_were_done_by_agents_that_did_not_say_when_they_began_it_is_not_known() -> None:
    assert begun(PartitionState(agent="a", watermark=1), NOW).begun_at is None


def records(master: str = "", phase: RunPhase = RunPhase.RUNNING, **fields: object) -> RunRecords:
    state = RunState(run_id="r", master=master, phase=phase) if master else None
    return RunRecords("r", **{"spec": SPEC, "state": state, "state_revision": 3, **fields})  # type: ignore[arg-type]


def left(master: str) -> RunRecords:
    return RunRecords("r", SPEC, given_up(RunState(run_id="r", master=master, phase=RunPhase.RUNNING)), 3)


def closing(master: str) -> RunRecords:
    state = RunState(run_id="r", master=master, phase=RunPhase.SUCCEEDED, closing=True)
    return RunRecords("r", SPEC, state, 3)


@pytest.mark.parametrize(
    ("run", "agent", "silent", "wanted"),
    [
        (records(), Candidate("p-0"), 0, Duties(Claim.CREATE, work=True)),
        (records("p-1"), Candidate("p-0"), 14, Duties(Claim.NONE, work=True)),
        (records("p-1"), Candidate("p-0"), 16, Duties(Claim.TAKE_OVER, work=True)),
        (records("p-0"), Candidate("p-0"), 0, Duties(Claim.TAKE_OVER, work=True)),
        (records("p-0"), Candidate("p-0", has_lost_it=True), 14, Duties(Claim.NONE, work=True)),
        (records("p-0"), Candidate("p-0", has_lost_it=True), 16, Duties(Claim.TAKE_OVER, work=True)),
        (records("p-0"), Candidate("p-0", is_master=True), 99, Duties(Claim.NONE, work=True)),
        (records("p-1", cancelled=True), Candidate("p-0"), 0, Duties(Claim.NONE, work=False)),
        (records(cancelled=True), Candidate("p-0"), 0, Duties(Claim.CREATE, work=False)),
        (records("p-1", RunPhase.SUCCEEDED), Candidate("p-0"), 99, Duties(over=True)),
        (records("p-1", RunPhase.CANCELLED), Candidate("p-1"), 0, Duties(over=True)),
        (records("p-1", spec=None), Candidate("p-0"), 99, Duties(over=True)),
        (records(), Candidate("p-0", is_mounted=False), 29, Duties(Claim.NONE, work=True)),
        (records(), Candidate("p-0", is_mounted=False), 31, Duties(Claim.CREATE, work=True)),
        (records("p-1"), Candidate("p-0", is_mounted=False), 29, Duties(Claim.NONE, work=True)),
        (records("p-0"), Candidate("p-0", is_mounted=False), 0, Duties(Claim.NONE, work=True)),
        (records("p-1"), Candidate("p-0", is_mounted=False), 31, Duties(Claim.TAKE_OVER, work=True)),
        (left("p-1"), Candidate("p-0"), 0, Duties(Claim.TAKE_OVER, work=True)),
        (left("p-1"), Candidate("p-1", has_lost_it=True), 14, Duties(Claim.NONE, work=True)),
        (left("p-1"), Candidate("p-1", has_lost_it=True), 16, Duties(Claim.TAKE_OVER, work=True)),
        (left("p-1"), Candidate("p-1", is_mounted=False), 29, Duties(Claim.NONE, work=True)),
        (records(cancelled=True), Candidate("p-0", is_mounted=False), 0, Duties(Claim.CREATE, work=False)),
        (closing("p-1"), Candidate("p-0", is_mounted=False), 16, Duties(Claim.TAKE_OVER, over=True)),
        (closing("p-1"), Candidate("p-0"), 14, Duties(over=True)),
        (closing("p-1"), Candidate("p-0"), 16, Duties(Claim.TAKE_OVER, over=True)),
        (closing("p-1"), Candidate("p-1", is_master=True), 99, Duties(over=True)),
    ],
    ids=[
        "no master", "the master is alive", "the master is silent", "held the role before a restart",
        "another process of its pod has taken it", "and that one is silent",
        "already leading", "cancelled: master only", "cancelled early",
        "ended", "cancelled and ended", "spec deleted",
        "not mounted, and others may be", "nobody is", "not mounted, silence", "not mounted, after a restart",
        "not mounted, long silence", "given up", "given up by itself", "given up, nobody else takes it",
        "given up, not mounted", "cancelled: no mount is needed",
        "to be told: no mount is needed",
        "its end is being told", "whoever told it is silent", "telling it",
    ],
)  # fmt: skip
def test_duties(run: RunRecords, agent: Candidate, silent: float, wanted: Duties) -> None:
    assert decide(run, agent, silent) == wanted


@pytest.mark.parametrize(("partitions", "seconds"), [(1, 0.04), (25, 1.0), (100, 4.0), (1000, 4.0)])
def test_states_that_many_agents_hear_are_written_less_often(partitions: int, seconds: float) -> None:
    assert pace(partitions) == seconds


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({"files_done": 3, "totals": [PartitionTotals(files=1)]}, False),
        ({"listed": True}, True),
        ({"stand_ins": [StandIn(partition=1)]}, True),
        ({"message": "partition 1: away"}, True),
    ],
)
def test_what_agents_wait_for_is_written_at_once(change: dict[str, object], news: bool) -> None:
    assert is_news(RunState(), RunState().model_copy(update=change)) is news


def make_totals(files: int, size: int, chunks: int) -> PartitionTotals:
    return PartitionTotals(files=files, bytes=size, chunks=chunks)


def chunk(id_: int, *names: str) -> Chunk:
    return Chunk(run_id="r", id=id_, files=[FileEntry(path=name, size=1) for name in names])


@given(st.lists(st.integers(0, 6), max_size=30))
def test_a_chunk_counts_once_however_often_it_is_done(ids: list[int]) -> None:
    part = PartitionState(partition=1)
    for id_ in ids:
        part = with_chunk(part, chunk(id_, "a"), Outcome(files=2, bytes=10, cached_bytes=9, failed=("x: y",)))
    distinct = sorted(set(ids))
    assert [*range(part.watermark), *part.chunks] == distinct
    assert finished_chunks(part) == len(distinct)
    assert all(is_recorded(part, id_) == (id_ in distinct) for id_ in range(8))
    assert (part.files, part.bytes, part.cached_bytes) == tuple(len(distinct) * n for n in (2, 10, 9))
    assert part.files_failed == len(distinct)


def test_the_record_of_a_partition_does_not_grow_with_its_chunks() -> None:
    part = PartitionState()
    for id_ in range(1000):
        part = with_chunk(part, chunk(id_), Outcome(files=1))
    assert (part.watermark, part.chunks, part.files) == (1000, [], 1000)


def test_a_chunk_that_was_finished_early_is_an_exception_until_those_before_it_are_done() -> None:
    part = PartitionState()
    for id_, watermark, ahead in ((0, 1, []), (3, 1, [3]), (2, 1, [2, 3]), (1, 4, [])):
        part = with_chunk(part, chunk(id_), Outcome())
        assert (part.watermark, part.chunks) == (watermark, ahead)


def test_at_most_twenty_failures_are_named() -> None:
    part = with_chunk(PartitionState(), chunk(0), Outcome(failed=tuple(f"f{n}: gone" for n in range(50))))
    part = with_chunk(part, chunk(1), Outcome(failed=("last: gone",)))
    assert (part.files_failed, len(part.failed_examples)) == (51, 20)


def test_at_most_twenty_notes_are_kept_and_said_with_the_end() -> None:
    part = with_chunk(PartitionState(), chunk(0), Outcome(notes=("a: did not exist",)))
    part = with_chunk(part, chunk(1), Outcome(notes=("b: did not exist",)))
    assert judge([], part.digest, progress([part])) == Ending(
        RunPhase.SUCCEEDED, message="a: did not exist; b: did not exist"
    )
    for number in range(2, 50):
        part = with_chunk(part, chunk(number), Outcome(notes=(f"n{number}",)))
    assert len(part.notes) == 20
    assert judge([], 2 * part.digest, progress([part, part])).message.endswith("; n19; ...")


def test_what_was_not_compared_is_summed_up_and_said_first() -> None:
    part = with_chunk(PartitionState(), chunk(0), Outcome(kept=2, uncompared=2, notes=("a: newer",)))
    part = with_chunk(part, chunk(1), Outcome(kept=3, uncompared=4))
    sums = progress([part, part])
    assert (sums.kept, sums.uncompared) == (10, 12)
    ending = judge([], 2 * part.digest, sums, remark="10 files were there")
    assert ending == Ending(RunPhase.SUCCEEDED, message="10 files were there; a: newer; a: newer")
    failed = with_chunk(part, chunk(2), Outcome(failed=("b: gone",)))
    assert judge([], 0, progress([failed]), remark="5 files were there").message.startswith(
        "1 files could not"
    )


def test_a_failed_chunk_names_its_files() -> None:
    assert all_failed(chunk(0, "a", "b"), "why") == Outcome(failed=("a: why", "b: why"))
    assert all_failed(chunk(0), "why") == Outcome(recount=0, uncounted=True)


@pytest.mark.parametrize(
    ("listed", "chunks", "done", "wanted"),
    [
        (False, [1, 1], {0: [0], 1: [0]}, False),
        (True, [2, 1], {0: [0], 1: [0]}, False),
        (True, [1, 1], {0: [0]}, False),
        (True, [1, 0], {0: [0]}, True),
        (True, [2, 1], {0: [0, 1], 1: [0]}, True),
        (True, [0, 0], {}, True),
    ],
)
def test_a_run_is_done_when_all_its_chunks_are(
    listed: bool, chunks: list[int], done: dict[int, list[int]], wanted: bool
) -> None:
    parts = {index: PartitionState(partition=index, chunks=ids) for index, ids in done.items()}
    assert is_done(listed, [PartitionTotals(files=1, bytes=1, chunks=n) for n in chunks], parts) is wanted


def test_endings() -> None:
    totals = [make_totals(3, 30, 1), make_totals(2, 20, 1)]
    good = progress([PartitionState(files=3), PartitionState(files=2)])
    bad = progress(
        [PartitionState(files=3), PartitionState(files=1, files_failed=1, failed_examples=["a: gone"])]
    )
    less = progress([PartitionState(files=3)])
    assert judge(totals, 0, good) == Ending(RunPhase.SUCCEEDED)
    assert judge(totals, 0, bad) == Ending(
        RunPhase.FAILED, "FilesFailed", "1 files could not be done: a: gone"
    )
    assert judge(totals, 0, less).reason == "FilesChanged"


def listing(paths: list[str]) -> tuple[list[Chunk], Splitter]:
    splitter = Splitter("r", 1, Limits(files=3))
    chunks = split([File(path, 10) for path in paths], splitter)
    return [unpack(pack(each)) for each in chunks], splitter


def test_a_file_that_was_skipped_because_the_listing_changed_is_no_success() -> None:
    """The first two chunks were done before f01 was deleted: f06 has moved into one of them."""
    paths = [f"f{number:02}" for number in range(12)]
    before, _ = listing(paths)
    after, splitter = listing([path for path in paths if path != "f01"] + ["new"])
    part = PartitionState()
    for each in (*before[:2], *after):
        part = with_chunk(part, each, Outcome(files=len(each.files)))
    assert is_done(True, splitter.totals, {0: part})
    assert part.files == splitter.totals[0].files
    ending = judge(splitter.totals, splitter.digest, progress([part]))
    assert (ending.phase, ending.reason) == (RunPhase.FAILED, "FilesChanged")


def test_the_same_chunks_have_the_same_digest_in_whatever_order() -> None:
    chunks, splitter = listing([f"f{number}" for number in range(50)])
    part = PartitionState()
    for each in (*chunks[::-1], *chunks):
        part = with_chunk(part, each, Outcome(files=len(each.files)))
    assert 0 < part.digest == splitter.digest < 1 << 63


@pytest.mark.parametrize("others", [["a", "b", "d"], ["b", "a", "c"], ["a", "bc"], ["a", "b"]])
def test_other_files_or_chunks_have_another_digest(others: list[str]) -> None:
    assert listing(others)[1].digest != listing(["a", "b", "c"])[1].digest


def test_a_failed_file_is_in_the_digest_as_it_was_listed() -> None:
    [only], splitter = listing(["a", "b"])
    assert with_chunk(PartitionState(), only, all_failed(only, "why")).digest == splitter.digest


def test_a_warmup_that_is_not_all_in_the_caches_says_so() -> None:
    sums = progress([PartitionState(files=3, bytes=40 << 20, cached_bytes=10 << 20)])
    ending = judge([make_totals(3, 40 << 20, 1)], 0, sums, fills_cache=True, remark="2 files were ignored")
    assert (ending.phase, ending.reason) == (RunPhase.SUCCEEDED, "PartlyCached")
    assert ending.message.startswith("10 MiB of 40 MiB (25 %) are in the caches")
    assert ending.message.endswith("; 2 files were ignored")


@pytest.mark.parametrize(("recount", "wanted"), [(100, 100), (30, 30), (0, 0), (120, 100)])
def test_a_recount_replaces_what_was_found_after_each_chunk(recount: int, wanted: int) -> None:
    part = with_chunk(PartitionState(), chunk(0, "a"), Outcome(files=1, bytes=100, cached_bytes=100))
    part = with_chunk(part, chunk(1), Outcome(recount=recount))
    assert (part.files, part.bytes, part.cached_bytes) == (1, 100, wanted)


def test_what_could_not_be_counted_is_not_claimed_and_said() -> None:
    part = with_chunk(
        PartitionState(), chunk(0, "a"), Outcome(files=1, bytes=10 << 20, cached_bytes=10 << 20)
    )
    counted = with_chunk(part, chunk(1), Outcome(recount=10 << 20))
    uncounted = with_chunk(part, chunk(1), all_failed(chunk(1), "two looks do not agree"))
    sums = progress([counted, uncounted])
    ending = judge([make_totals(2, 20 << 20, 3)], sums.digest, sums, fills_cache=True)
    assert (ending.phase, ending.reason) == (RunPhase.SUCCEEDED, "PartlyCached")
    assert ending.message.startswith("10 MiB of 20 MiB (50 %) are in the caches")
    assert ending.message.endswith(": those of 1 partitions could not be looked up")


def test_progress_is_summed_into_the_state() -> None:
    parts = [
        PartitionState(files=3, bytes=30, cached_bytes=30, chunks=[0, 1]),
        PartitionState(files=1, bytes=5),
    ]
    totals = [make_totals(3, 30, 2), make_totals(2, 10, 1)]
    state = with_progress(RunState(run_id="r"), True, totals, progress(parts), fills_cache=True)
    assert (state.files_done, state.files_total, state.bytes_done, state.bytes_total) == (4, 5, 35, 40)
    assert (state.chunks_done, state.chunks_total, state.cached_percent) == (2, 3, 75.0)
    assert with_progress(state, True, totals, progress(parts), fills_cache=False).cached_percent == 0
    assert with_progress(state, False, totals, progress(parts), fills_cache=True).cached_percent == 0


def test_a_failed_file_of_unknown_size_leaves_no_hundred_percent() -> None:
    """The listing has no size for a file that does not exist."""
    sums = progress([PartitionState(files=1, bytes=10, cached_bytes=10, files_failed=1)])
    state = with_progress(RunState(), True, [make_totals(2, 10, 1)], sums, fills_cache=True)
    assert (state.files_done, state.files_failed, state.cached_percent) == (1, 1, 50.0)


@pytest.mark.parametrize(
    ("files", "size", "count"),
    [(1, 5, "1 file of 5 B"), (0, 0, "0 files of 0 B"), (1437, 2 << 20, "1,437 files of 2.0 MiB")],
)
def test_a_dry_run_ends_with_a_count(files: int, size: int, count: str) -> None:
    ending = dry_ending([make_totals(files, size, 0), make_totals(0, 0, 0)])
    assert ending == Ending(RunPhase.SUCCEEDED, message=f"dry run: {count} in the source, nothing was copied")


@pytest.mark.parametrize(
    ("part", "whole", "wanted"), [(0, 0, 100.0), (999_999, 1_000_000, 99.99), (5, 5, 100.0)]
)
def test_a_hundred_percent_means_all(part: int, whole: int, wanted: float) -> None:
    assert percent(part, whole) == wanted


def test_a_new_term_keeps_the_beginning_and_lists_again() -> None:
    first = claimed(None, "r", "p-0", NOW)
    assert (first.term, first.master, first.started_at, first.phase) == (1, "p-0", NOW, RunPhase.RUNNING)
    later = NOW + timedelta(minutes=1)
    second = claimed(first.model_copy(update={"listed": True}), "r", "p-1", later)
    assert (second.term, second.master, second.started_at, second.heartbeat) == (2, "p-1", NOW, later)
    assert not second.listed


def test_a_new_term_keeps_the_judgement_and_the_end() -> None:
    done = RunState(run_id="r", phase=RunPhase.RUNNING, listed=True, reason="PartitionAway", message="x")
    ending = Ending(RunPhase.SUCCEEDED, "PartlyCached", "half")
    state = claimed(judged(done, ending, NOW), "r", "p-1", NOW)
    assert (state.listed, state.reason, state.message) == (True, "", "")
    assert judgement_of(state) == ending
    final = claimed(ended(state, ending, NOW), "r", "p-2", NOW)
    assert (final.phase, final.reason, final.message) == (RunPhase.SUCCEEDED, "PartlyCached", "half")
    assert (final.closing, final.listed, final.judgement, final.ended_at) == (True, True, None, NOW)


def test_a_state_is_short_enough_to_be_sent_to_a_thousand_agents() -> None:
    totals = [make_totals(12_345, 123_456_789_012, 190) for _ in range(1000)]
    listing = with_progress(RunState(run_id="r"), False, totals, progress([]), fills_cache=True)
    listed = with_progress(RunState(run_id="r"), True, totals, progress([]), fills_cache=True)
    assert len(to_json(listing)) < 1000
    assert len(to_json(listed)) < 20_000
    assert (listing.chunks_total, [total.chunks for total in listed.totals]) == (190_000, [190] * 1000)


def test_eta_needs_a_complete_listing() -> None:
    sums = progress([PartitionState(bytes=25)])
    assert eta(sums, RunState(bytes_total=100, listed=True), 10) == 30.0
    assert eta(sums, RunState(bytes_total=100), 10) == 0
    assert eta(progress([]), RunState(bytes_total=100, listed=True), 10) == 0


def test_clear_goes_to_the_named_partitions_or_all() -> None:
    everyone = RunSpec(partitions=3, clear=ClearOperation())
    some = RunSpec(partitions=3, clear=ClearOperation(partitions=[2, 7]))
    assert partitions_to_clear(everyone) == [0, 1, 2]
    assert partitions_to_clear(some) == [2]


@pytest.mark.parametrize(
    ("size", "mbps", "seconds"),
    [(0, 0, 0), (100 << 30, 1, 1_717_986), (64 << 20, 1, 1073), (1 << 30, 0, 2147), (1 << 30, 1000, 2147)],
)
def test_a_copy_has_twice_the_time_of_its_bytes_at_its_share(size: int, mbps: int, seconds: int) -> None:
    assert int(copy_time(size, mbps)) == seconds


def test_one_bandwidth_limit_is_shared() -> None:
    spec = RunSpec(partitions=4, sync=SyncOperation(bandwidth_limit=10))
    assert [bandwidth_share(spec, partition) for partition in range(4)] == [3, 3, 2, 2]
    small = RunSpec(partitions=10, sync=SyncOperation(bandwidth_limit=5))
    assert 0 not in [bandwidth_share(small, partition) for partition in range(10)]
    assert bandwidth_share(SPEC, 0) == 0
