"""How much one set may store, by what one replica of bus-auth has admitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddlewheel.bus.admin.set_quotas import (
    FOUND,
    LOOK_AGAIN,
    OVERHEAD,
    QUOTAS,
    TOLD_PER_SECOND,
    Quotas,
    size_of,
)
from paddlewheel.bus.admin.set_writes import Write
from paddlewheel.bus.markers import DELETED, DONE
from paddlewheel.bus.streams import NODES, RUNS, WORK
from paddlewheel.contracts.subjects import work_subject

QUOTA = 10_000


def write(name: str, size: int = 1000, uid: str = "uid-a", stream: str = RUNS.name) -> Write:
    """One that counts so many bytes."""
    subject = f"$KV.pw_cache_runs.{uid}.{name}.state"
    return Write(uid, stream, subject, {}, bytes(size - OVERHEAD - len(subject)))


def ending(name: str) -> Write:
    """Of the chunk of `write`."""
    return replace(write(name), headers=DONE, body=b"")


def quotas(most: int = 1_000_000) -> Quotas:
    return Quotas({RUNS.name: QUOTA, WORK.name: QUOTA}, most)


def store(kept: Quotas, *writes: Write) -> list[bool]:
    """Whether there was room for each; those for which there was are stored."""
    admitted = []
    for each in writes:
        admitted.append(kept.has_room(each))
        if admitted[-1]:
            kept.begin(each)
            kept.end(each, is_stored=True)
    return admitted


def test_subject_headers_body_and_what_each_message_costs_count() -> None:
    assert size_of(write("a", 1000)) == 1000
    marker = replace(write("a"), headers=DELETED, body=b"")
    assert size_of(marker) == len(marker.subject) + len("KV-Operation: DEL\r\nNats-TTL: 1h\r\n") + OVERHEAD


def test_a_set_stores_its_share_and_no_more_and_others_theirs() -> None:
    kept = quotas()

    assert store(kept, *(write(str(number)) for number in range(12))) == [True] * 10 + [False] * 2
    assert store(kept, write("0", uid="uid-b"), write("0", stream=WORK.name)) == [True, True]


@pytest.mark.parametrize(("size", "admitted"), [(999, True), (1000, True), (1001, False)])
def test_what_is_no_larger_than_what_it_replaces_is_always_stored(size: int, admitted: bool) -> None:
    kept = quotas()
    store(kept, *(write(str(number)) for number in range(10)))

    assert kept.has_room(write("3", size)) is admitted


def test_smaller_records_leave_room() -> None:
    kept = quotas()
    store(kept, *(write(str(number)) for number in range(10)))

    assert store(kept, write("3", 400), write("new", 600), write("newer", 200)) == [True, True, False]


def test_a_chunk_that_is_done_leaves_room_and_its_end_needs_none() -> None:
    kept = quotas()
    store(kept, *(write(str(number)) for number in range(10)))

    assert store(kept, ending("unknown"), write("new"), ending("3"), write("new")) == [
        True,
        False,
        True,
        True,
    ]
    assert kept.subjects == 10


def test_what_is_not_known_to_be_stored_counts_with_what_it_would_replace() -> None:
    kept = quotas()
    store(kept, write("a", 5000))
    for each, size in (("a", 200), ("b", 5000)):
        kept.begin(write(each, size))
        kept.end(write(each, size), is_stored=False)

    assert not kept.has_room(write("c", 200))
    assert store(kept, write("a", 200), write("c", 4800)) == [True, True]


def test_writes_on_their_way_count() -> None:
    kept = quotas()
    for number in range(10):
        kept.begin(write(str(number)))

    assert not kept.has_room(write("new"))


def test_of_two_writes_at_once_the_larger_counts_until_both_are_over() -> None:
    kept = quotas()
    large, small = write("a", 9000), write("a", 1000)
    kept.begin(large)
    kept.begin(small)
    kept.end(small, is_stored=True)
    assert not kept.has_room(write("b", 2000))

    kept.end(large, is_stored=True)
    assert kept.has_room(write("b", 1000))


def look(kept: Quotas, *found: Write, now: float = 0.0) -> None:
    kept.begin_look(write("any"))
    kept.end_look(write("any"), {hash(each.subject) for each in found}, now)


def test_what_is_gone_is_forgotten_and_what_others_have_stored_counts() -> None:
    kept = quotas()
    store(kept, *(write(str(number)) for number in range(10)))

    look(kept, write("0"), write("1"), write("of another replica"))

    room = QUOTA - 2000 - FOUND
    assert (kept.has_room(write("new", room)), kept.has_room(write("new", room + 1))) == (True, False)
    assert kept.subjects == 3


def test_what_is_written_while_the_stream_is_asked_is_not_forgotten() -> None:
    kept = quotas()
    store(kept, write("old", 7000))
    before, during = write("before", 1000), write("during", 1000)
    kept.begin(before)
    kept.begin_look(before)
    store(kept, during)
    kept.end(before, is_stored=True)
    kept.end_look(before, set(), 0.0)

    assert (kept.has_room(write("new", 8000)), kept.has_room(write("new", 8001))) == (True, False)


def test_a_chunk_that_is_done_while_the_stream_is_asked_does_not_come_back() -> None:
    kept = quotas()
    store(kept, write("done", 1000))
    kept.begin_look(write("any"))
    store(kept, ending("done"))
    kept.end_look(write("any"), {hash(write("done").subject)}, 0.0)

    assert kept.subjects == 0


def test_the_stream_is_asked_the_less_often_the_more_it_has_of_the_set() -> None:
    kept, now = quotas(), 100.0
    assert not kept.may_look(write("a"), now)
    store(kept, write("a"))
    assert kept.may_look(write("a"), now)

    kept.begin_look(write("a"))
    assert not kept.may_look(write("a"), now)
    kept.end_look(write("a"), set(), now)
    assert not kept.may_look(write("a"), now + LOOK_AGAIN - 0.1)
    assert kept.may_look(write("a"), now + LOOK_AGAIN)

    kept.begin_look(write("a"))
    kept.end_look(write("a"), set(range(30 * TOLD_PER_SECOND)), now)
    assert not kept.may_look(write("a"), now + 29)
    assert kept.may_look(write("a"), now + 30)


def test_a_stream_that_does_not_answer_changes_nothing() -> None:
    kept = quotas()
    store(kept, *(write(str(number)) for number in range(10)))
    kept.begin_look(write("a"))
    kept.end_look(write("a"), None, 0.0)

    assert not kept.has_room(write("new"))
    assert not kept.may_look(write("a"), LOOK_AGAIN / 2)


def test_sets_that_have_not_written_for_longest_are_forgotten_but_for_what_is_on_its_way() -> None:
    kept = quotas(most=45)
    kept.begin(write("on its way", 9900, uid="uid-1"))
    store(kept, write("0", 9900, uid="uid-2"))
    store(kept, *(write(str(number), 400, uid="uid-3") for number in range(10)))
    store(kept, write("0", uid="uid-4"))

    room = {uid: kept.has_room(write("new", 9000, uid=uid)) for uid in ("uid-1", "uid-2", "uid-3", "uid-4")}
    assert room == {"uid-1": False, "uid-2": True, "uid-3": False, "uid-4": True}
    assert kept.subjects <= 45


def test_one_run_never_meets_the_share_of_work() -> None:
    """It publishes 64 MiB ahead, counted as its subjects and bodies (cache_runtime.window)."""
    subject = work_subject(*2 * ("0" * 36,), 10, 1000)
    smallest = Write("uid", WORK.name, subject, {}, bytes(100))
    ahead = (64 << 20) // (len(subject) + len(smallest.body))

    assert ahead * size_of(smallest) < QUOTAS[WORK.name]
    assert QUOTAS[WORK.name] > 2 * (60 << 20)


def test_sets_with_all_partitions_have_room_for_their_records() -> None:
    assert QUOTAS[RUNS.name] > 20 * (640 + OVERHEAD) * 1000
    # With the longest messages that they may have.
    assert QUOTAS[NODES.name] > (3000 + OVERHEAD) * 1000
