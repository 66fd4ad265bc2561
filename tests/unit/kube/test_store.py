"""The store of an informer: watch events, own writes and deletions in every possible order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from paddlewheel.contracts.keys import Key
from paddlewheel.kube import store as store_module
from paddlewheel.kube.objects import version_of
from paddlewheel.kube.ports import Change, Object
from paddlewheel.kube.store import CONFIRM_TIMEOUT_SECONDS, WatchedStore
from paddlewheel.testkit.clock import ManualClock

KEY = Key("default", "a")


def obj(version: int, uid: str = "u", name: str = "a", *, owner: str = "job", **metadata: Any) -> Object:
    return {
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {"owner": owner},
            **metadata,
        }
    }


def added(*args: Any, listed: bool = False, **fields: Any) -> Change:
    return Change("ADDED", obj(*args, **fields), listed=listed)


def modified(*args: Any, listed: bool = False, **fields: Any) -> Change:
    return Change("MODIFIED", obj(*args, **fields), listed=listed)


def deleted(*args: Any, **fields: Any) -> Change:
    return Change("DELETED", obj(*args, **fields))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> WatchedStore:
    return WatchedStore(clock, {"owner": lambda found: [found["metadata"]["labels"]["owner"]]})


def version(store: WatchedStore) -> int | None:
    """The resourceVersion of the object in the store. None when the store has no object."""
    found = store.get(KEY)
    shown = [version_of(listed) for listed in store.by_index("owner", "job")]
    assert shown == ([] if found is None else [version_of(found)])
    assert store.keys() == ([] if found is None else [KEY])
    assert store.count_by_index("owner", "job") == len(shown)
    return None if found is None else int(version_of(found))


def test_an_own_write_is_shown_at_once(store: WatchedStore) -> None:
    store.wrote(obj(10))
    assert store.get(KEY) == obj(10)
    assert store.by_index("owner", "job") == store.list("default") == store.list() == [obj(10)]
    assert store.list("elsewhere") == []


def test_versions_compare_as_integers(store: WatchedStore) -> None:
    store.apply(added(9))
    store.wrote(obj(10))
    assert version(store) == 10
    assert not store.apply(modified(9))
    assert version(store) == 10


def test_an_answer_that_arrives_after_its_event_is_ignored(store: WatchedStore) -> None:
    assert store.apply(added(10))
    store.wrote(obj(10))
    assert not store.is_own(modified(10))
    assert store.apply(modified(12))
    store.wrote(obj(11))
    assert version(store) == 12
    assert store.apply(deleted(13))
    assert version(store) is None


def test_an_answer_that_arrives_after_the_deletion_leaves_no_ghost(store: WatchedStore) -> None:
    store.apply(added(10))
    store.apply(deleted(12))
    store.wrote(obj(11))
    assert version(store) is None
    store.wrote(obj(14, uid="successor"))
    assert version(store) == 14


def test_an_answer_to_the_write_that_deletes_arrives_after_the_deletion(store: WatchedStore) -> None:
    store.apply(deleted(12))
    store.wrote(obj(12))
    assert version(store) is None


def test_deletions_are_remembered_for_a_while_and_in_bounded_number(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "TOMBSTONES", 2)
    for name in ("a", "b", "c"):
        store.apply(deleted(12, name=name))
    for name in ("a", "b", "c"):
        store.wrote(obj(11, name=name))
    assert store.list() == [obj(11)]


async def test_a_deletion_is_forgotten_after_the_patience(store: WatchedStore, clock: ManualClock) -> None:
    store.apply(deleted(12))
    await clock.advance(CONFIRM_TIMEOUT_SECONDS - 1)
    store.wrote(obj(11))
    assert version(store) is None
    store.apply(deleted(12))
    await clock.advance(CONFIRM_TIMEOUT_SECONDS - 1)
    store.wrote(obj(11))
    assert version(store) is None
    await clock.advance(1)
    store.wrote(obj(11))
    assert version(store) == 11


def test_a_repeated_event_of_a_deleted_object_is_stale(store: WatchedStore) -> None:
    store.apply(added(10))
    store.apply(deleted(12))
    assert not store.apply(modified(11))
    assert version(store) is None


async def test_a_late_repeat_of_an_older_deletion_changes_nothing(
    store: WatchedStore, clock: ManualClock
) -> None:
    store.apply(deleted(14))
    await clock.advance(CONFIRM_TIMEOUT_SECONDS / 2)
    store.apply(deleted(12, uid="predecessor"))
    assert not store.apply(added(14))
    assert not store.apply(added(13, uid="predecessor"))
    assert version(store) is None
    await clock.advance(CONFIRM_TIMEOUT_SECONDS / 2)
    assert version(store) is None
    assert not store._tombstones


def test_a_relist_may_report_the_successor_with_the_version_of_the_deletion(store: WatchedStore) -> None:
    store.apply(added(10))
    assert store.apply(deleted(14))
    assert store.apply(added(14, uid="successor"))
    assert version(store) == 14


def test_a_watch_event_confirms_an_own_write(store: WatchedStore, clock: ManualClock) -> None:
    store.wrote(obj(10))
    assert store.apply(added(10))
    assert store.is_own(added(10))


async def test_a_confirmed_write_stays(store: WatchedStore, clock: ManualClock) -> None:
    store.wrote(obj(10))
    store.apply(added(10))
    await clock.advance(CONFIRM_TIMEOUT_SECONDS)
    assert version(store) == 10


@pytest.mark.parametrize(
    ("events", "left"),
    [([], None), ([added(9)], 9), ([added(8), modified(9), modified(8)], 9), ([added(8), deleted(9)], None)],
)
async def test_an_unconfirmed_write_is_dropped_for_what_the_watch_last_reported(
    store: WatchedStore, clock: ManualClock, events: list[Change], left: int | None
) -> None:
    store.wrote(obj(10))
    assert [store.apply(event) for event in events] == [False for _ in events]
    await clock.advance(CONFIRM_TIMEOUT_SECONDS - 1)
    assert version(store) == 10
    await clock.advance(1)
    assert version(store) == left
    assert not store.is_own(added(10))


async def test_a_later_write_starts_a_new_wait(store: WatchedStore, clock: ManualClock) -> None:
    store.apply(added(5))
    store.wrote(obj(10))
    store.wrote(obj(10, name="b"))
    await clock.advance(CONFIRM_TIMEOUT_SECONDS - 1)
    store.wrote(obj(11))
    await clock.advance(1)
    assert store.list() == [obj(11)]
    await clock.advance(CONFIRM_TIMEOUT_SECONDS - 1)
    assert version(store) == 5


async def test_every_reader_drops_what_has_expired(store: WatchedStore, clock: ManualClock) -> None:
    readers: list[Callable[[], object]] = [
        lambda: store.get(KEY),
        store.list,
        store.keys,
        lambda: store.by_index("owner", "job"),
        lambda: store.count_by_index("owner", "job"),
    ]
    for reader in readers:
        store.wrote(obj(10))
        assert reader()
        await clock.advance(CONFIRM_TIMEOUT_SECONDS)
        assert not reader()


def test_only_the_event_of_the_last_own_write_is_own(store: WatchedStore) -> None:
    store.wrote(obj(10))
    store.wrote(obj(11))
    assert not store.apply(added(10))
    assert store.apply(modified(11))
    assert store.is_own(modified(11))
    assert not store.is_own(modified(10))
    assert not store.is_own(modified(11, name="other"))
    assert store.apply(modified(12))
    assert not store.is_own(modified(12))
    assert not store.is_own(modified(11))


def test_a_foreign_change_inside_an_own_write_is_not_own(store: WatchedStore) -> None:
    store.apply(added(10))
    store.wrote(obj(12))
    assert not store.apply(modified(11))
    assert store.apply(modified(12))
    assert not store.is_own(modified(12))


def test_what_a_list_reports_is_not_own_since_it_may_hide_other_changes(store: WatchedStore) -> None:
    store.apply(added(10))
    store.wrote(obj(12))
    change = modified(12, listed=True)
    assert store.apply(change)
    assert not store.is_own(change)
    assert not store.is_own(modified(12))


def test_a_list_between_two_own_writes_makes_the_second_not_own(store: WatchedStore) -> None:
    store.wrote(obj(10))
    store.wrote(obj(12))
    assert not store.apply(added(10, listed=True))
    assert store.apply(modified(12))
    assert not store.is_own(modified(12))


def test_an_own_write_that_left_the_selector_is_not_own(store: WatchedStore) -> None:
    store.apply(added(10))
    store.wrote(obj(12))
    assert store.apply(deleted(12))
    assert not store.is_own(deleted(12))
    assert version(store) is None


def test_what_was_read_is_shown_but_is_not_own(store: WatchedStore) -> None:
    store.read(obj(10))
    assert version(store) == 10
    assert store.apply(added(10))
    assert not store.is_own(added(10))
    store.wrote(obj(10))
    assert not store.is_own(added(10))


def test_an_accepted_delete_shows_a_deletion_timestamp(store: WatchedStore) -> None:
    store.apply(added(10))
    store.deleting(KEY, "u")
    shown = obj(10, deletionTimestamp="2026-01-01T00:00:00Z")
    assert store.get(KEY) == shown
    assert store.by_index("owner", "job") == [shown]
    assert store.apply(modified(11))
    assert store.get(KEY) == obj(11, deletionTimestamp="2026-01-01T00:00:00Z")
    assert store.apply(modified(12, deletionTimestamp="server"))
    assert store.get(KEY) == obj(12, deletionTimestamp="server")
    assert store.apply(deleted(13))
    assert version(store) is None


def test_an_answer_from_before_the_delete_keeps_the_deletion_timestamp(store: WatchedStore) -> None:
    store.apply(added(10))
    store.deleting(KEY, "u")
    store.wrote(obj(11))
    assert store.get(KEY) == obj(11, deletionTimestamp="2026-01-01T00:00:00Z")


def test_the_deletion_timestamp_of_the_server_is_kept(store: WatchedStore) -> None:
    store.apply(added(10, deletionTimestamp="server"))
    store.deleting(KEY, "u")
    assert store.get(KEY) == obj(10, deletionTimestamp="server")


@pytest.mark.parametrize("vanishes", [False, True])
def test_a_delete_of_another_object_changes_nothing(store: WatchedStore, vanishes: bool) -> None:
    store.deleting(KEY, "u", vanishes=vanishes)
    store.apply(added(10))
    store.deleting(KEY, "predecessor", vanishes=vanishes)
    assert store.get(KEY) == obj(10)


@pytest.mark.parametrize("vanishes", [False, True])
async def test_a_delete_that_the_watch_never_reports_is_taken_back(
    store: WatchedStore, clock: ManualClock, vanishes: bool
) -> None:
    store.apply(added(10))
    store.deleting(KEY, "u", vanishes=vanishes)
    store.apply(modified(11))
    await clock.advance(CONFIRM_TIMEOUT_SECONDS)
    assert store.get(KEY) == obj(11)
    assert store.apply(modified(12))
    assert store.get(KEY) == obj(12)


def test_what_vanishes_is_gone_at_once(store: WatchedStore) -> None:
    store.apply(added(10))
    store.deleting(KEY, "u", vanishes=True)
    assert version(store) is None
    assert not store.apply(modified(11))
    assert version(store) is None
    store.wrote(obj(12))
    assert version(store) is None
    assert store.apply(deleted(13))
    assert version(store) is None


def test_what_should_vanish_but_has_finalizers_comes_back_terminating(store: WatchedStore) -> None:
    store.apply(added(10))
    store.deleting(KEY, "u", vanishes=True)
    held: dict[str, Any] = {"deletionTimestamp": "server", "finalizers": ["x"]}
    assert store.apply(modified(11, **held))
    assert store.get(KEY) == obj(11, **held)
    store.deleting(KEY, "u", vanishes=True)
    store.wrote(obj(12, **held))
    assert store.get(KEY) == obj(12, **held)


def test_the_successor_of_what_vanished_is_shown(store: WatchedStore) -> None:
    store.apply(added(10))
    store.deleting(KEY, "u", vanishes=True)
    store.wrote(obj(9, uid="predecessor"))
    assert version(store) is None
    store.wrote(obj(12, uid="successor"))
    assert version(store) == 12
    assert store.apply(deleted(11))
    assert version(store) == 12
    assert store.apply(added(12, uid="successor"))
    assert store.is_own(added(12, uid="successor"))
    assert version(store) == 12


def test_late_events_do_not_bring_back_what_vanished(store: WatchedStore) -> None:
    store.apply(added(10))
    store.wrote(obj(12, uid="successor"))
    store.deleting(KEY, "successor", vanishes=True)
    assert not store.apply(modified(10))
    assert version(store) is None
    assert store.apply(deleted(11))
    assert version(store) is None
    assert not store.apply(added(12, uid="successor"))
    assert version(store) is None
    assert store.apply(deleted(13, uid="successor"))
    assert version(store) is None


def test_the_successor_is_not_marked_with_the_deletion_of_its_predecessor(store: WatchedStore) -> None:
    store.apply(added(10))
    store.deleting(KEY, "u")
    store.wrote(obj(12, uid="successor"))
    assert store.get(KEY) == obj(12, uid="successor")
    assert store.apply(modified(13, uid="successor"))
    assert store.get(KEY) == obj(13, uid="successor")


def test_the_end_of_a_predecessor_is_reported_even_if_a_relist_gives_it_the_successors_version(
    store: WatchedStore,
) -> None:
    store.apply(added(10))
    store.wrote(obj(12, uid="successor"))
    assert store.apply(deleted(12))
    assert version(store) == 12


def test_the_write_that_takes_the_last_finalizer_removes_the_object(store: WatchedStore) -> None:
    store.apply(added(10, deletionTimestamp="server", finalizers=["x"]))
    store.wrote(obj(11, deletionTimestamp="server", deletionGracePeriodSeconds=0))
    assert version(store) is None
    assert store.apply(deleted(12))
    store.wrote(obj(11, deletionTimestamp="server"))
    assert version(store) is None


def test_a_pod_in_its_grace_period_is_not_gone(store: WatchedStore) -> None:
    store.apply(added(10))
    store.wrote(obj(11, deletionTimestamp="server", deletionGracePeriodSeconds=30))
    assert version(store) == 11


def test_an_object_moves_between_index_values(store: WatchedStore) -> None:
    store.apply(added(10, owner="job"))
    store.apply(added(11, name="b", owner="job"))
    store.wrote(obj(12, owner="other"))
    assert [o["metadata"]["name"] for o in store.by_index("owner", "job")] == ["b"]
    assert [o["metadata"]["name"] for o in store.by_index("owner", "other")] == ["a"]
    store.apply(deleted(13, name="b"))
    assert store.by_index("owner", "job") == []
    assert store.count_by_index("owner", "job") == 0
    assert store.count_by_index("owner", "other") == 1


def test_objects_without_a_version_are_taken_as_they_come(store: WatchedStore) -> None:
    bare: Object = {"metadata": {"namespace": "default", "name": "a", "labels": {"owner": "job"}}}
    assert store.apply(Change("ADDED", bare))
    assert store.get(KEY) == bare
    assert store.apply(Change("DELETED", bare))
    assert store.get(KEY) is None


def test_a_cleared_store_remembers_nothing(store: WatchedStore) -> None:
    store.apply(added(10, name="b"))
    store.apply(deleted(12, name="c"))
    store.wrote(obj(11))
    assert store.clear() == [obj(10, name="b"), obj(11)]
    assert (store.list(), store.by_index("owner", "job")) == ([], [])
    assert store.apply(added(10))
    assert not store.is_own(added(11))
    assert store.apply(added(11, name="c"))


async def test_a_write_that_was_cleared_does_not_come_back(store: WatchedStore, clock: ManualClock) -> None:
    store.apply(added(10))
    store.wrote(obj(11))
    store.clear()
    await clock.advance(CONFIRM_TIMEOUT_SECONDS)
    assert version(store) is None


async def test_an_event_after_the_patience_is_compared_with_what_the_watch_reported(
    store: WatchedStore, clock: ManualClock
) -> None:
    store.apply(added(10))
    store.wrote(obj(13))
    await clock.advance(CONFIRM_TIMEOUT_SECONDS)
    assert store.apply(modified(12))
    assert version(store) == 12


async def test_a_delete_after_the_patience_is_of_what_the_watch_reported(
    store: WatchedStore, clock: ManualClock
) -> None:
    store.apply(added(10))
    store.wrote(obj(13, uid="successor"))
    await clock.advance(CONFIRM_TIMEOUT_SECONDS)
    store.deleting(KEY, "successor", vanishes=True)
    assert version(store) == 10


def test_a_foreign_update_of_what_we_delete_is_not_own(store: WatchedStore) -> None:
    store.apply(added(10))
    store.wrote(obj(11))
    store.deleting(KEY, "u")
    assert store.apply(modified(12))
    assert not store.is_own(modified(11))


async def test_a_deletion_reported_again_is_remembered_longer(
    store: WatchedStore, clock: ManualClock
) -> None:
    store.apply(deleted(12))
    store.apply(deleted(12, name="b"))
    await clock.advance(CONFIRM_TIMEOUT_SECONDS - 1)
    store.apply(deleted(14))
    await clock.advance(1)
    store.wrote(obj(13))
    store.wrote(obj(11, name="b"))
    assert [found["metadata"]["name"] for found in store.list()] == ["b"]


def test_a_write_is_reported_once_the_watch_has_shown_it_or_a_later_one(store: WatchedStore) -> None:
    store.apply(added(1))
    assert store.is_reported(KEY)
    store.wrote(obj(3))
    assert not store.is_reported(KEY)
    store.apply(modified(2))
    assert not store.is_reported(KEY)
    store.apply(modified(3))
    assert store.is_reported(KEY)
