"""Matching, rendering, ids and the reading of notifications, as tables."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddlewheel.contracts.base import write_time
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.crds import TriggerStatus, parse_trigger_status
from paddlewheel.contracts.crds.trigger import (
    StatusChild,
    StatusEvent,
    StatusGathered,
    StatusRefused,
    TriggerAnnouncement,
)
from paddlewheel.contracts.generated.objectstore_v1 import ObjectCreated
from paddlewheel.contracts.merge_patch import merge_patch
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.triggers import READY, make_store_trigger, make_trigger, s3_body, s3_record
from trigger_controller.domain import names
from trigger_controller.domain.matching import concerns
from trigger_controller.domain.model import Observed, Occurrence, Trigger
from trigger_controller.domain.notifications import Notification, read_notifications
from trigger_controller.domain.parse import parse_trigger
from trigger_controller.domain.plan import decide, may_release
from trigger_controller.domain.policies.intake import join
from trigger_controller.domain.policies.release import wait_before_release
from trigger_controller.domain.render import render_child
from trigger_controller.timing import CHILDREN_LIST_INTERVAL_SECONDS

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
GRANTS = {"images": ("*",), "logs": ("team-a",)}
STORED = "paddlewheel.objectstore.v1.ObjectCreated"
REMOVED = "paddlewheel.objectstore.v1.ObjectRemoved"


def parsed(manifest: dict[str, Any], uid: str = "t-uid") -> Trigger:
    """As the API server would give it back."""
    about = {"uid": uid, "generation": 1, "creationTimestamp": write_time(NOW)}
    manifest["metadata"] |= about
    return parse_trigger(manifest, GRANTS)


def fact(**parts: Any) -> StatusEvent:
    about = {"object_namespace": "default", "object_name": "digits"}
    return StatusEvent(**{"id": "e", "type": READY, "time": NOW, **about, **parts})


def stored(key: str = "train/a.png", **parts: Any) -> StatusEvent:
    about = {"store_source": "images", "store_bucket": "images", "store_key": key}
    return StatusEvent(**{"id": "e", "type": STORED, "time": NOW, **about, **parts})


def created_by_sync() -> Occurrence:
    return Occurrence(fact(), kind="SampleJob", creator="sync")


def fact_trigger(**spec: Any) -> Trigger:
    return parsed(make_trigger(when={"fact": {"type": READY, **spec}}))


def store_trigger(**where: Any) -> Trigger:
    when = {"source": "images", "bucket": "images", **where}
    return parsed(make_store_trigger(when={"objectStore": when}))


@pytest.mark.parametrize(
    ("trigger", "event", "wanted"),
    [
        (fact_trigger(), fact(), True),
        (fact_trigger(), fact(object_namespace="other"), False),
        (fact_trigger(), fact(type="paddlewheel.datasets.v1.SampleSetBound"), False),
        (fact_trigger(), fact(time=NOW - timedelta(seconds=4)), True),
        (fact_trigger(), fact(time=NOW - timedelta(seconds=6)), False),
        (fact_trigger(object={"name": "digits"}), fact(), True),
        (fact_trigger(object={"name": "mnist"}), fact(), False),
        (fact_trigger(object={"createdBy": "sync"}), created_by_sync(), True),
        (fact_trigger(object={"createdBy": "sync"}), fact(), False),
        (fact_trigger(object={"createdBy": "sync", "name": "x"}), created_by_sync(), False),
        (fact_trigger(), stored(), False),
        (store_trigger(), stored(), True),
        (store_trigger(), fact(), False),
        (store_trigger(), stored(store_source="others"), False),
        (store_trigger(), stored(store_bucket="others"), False),
        (store_trigger(), stored(type=REMOVED), False),
        (store_trigger(events=["ObjectRemoved"]), stored(type=REMOVED), True),
        (store_trigger(prefix="train/", suffix=".png"), stored(), True),
        (store_trigger(prefix="test/"), stored(), False),
        (store_trigger(suffix=".jpg"), stored(), False),
    ],
)
def test_which_events_concern_a_trigger(
    trigger: Trigger, event: StatusEvent | Occurrence, wanted: bool
) -> None:
    occurrence = event if isinstance(event, Occurrence) else Occurrence(event)
    assert concerns(trigger, occurrence) is wanted


def gathered(event: StatusEvent, events: int = 1) -> StatusGathered:
    return StatusGathered(events=events, since=NOW, until=NOW, newest=event)


def rendered(spec: dict[str, Any], event: StatusEvent, kind: str = "sampleJob") -> Any:
    make = make_store_trigger if event.store_source else make_trigger
    trigger = parsed(make("warm", create={kind: {"spec": spec}}))
    return render_child(trigger, gathered(event, 3))["spec"]


def test_names_are_filled_in_everywhere_once() -> None:
    spec = {
        "a": "$(store.key) of $(store.bucket) at $(store.source)",
        "b": ["$(event.id)", {"c": "$(event.type)/$(event.count)/$(event.time)"}],
        "n": 3,
        "t": True,
        "trigger": "$(trigger.name)",
    }
    assert rendered(spec, stored("$(event.id)")) == {
        "a": "$(event.id) of images at images",
        "b": ["e", {"c": f"{STORED}/3/2026-01-31T12:00:00Z"}],
        "n": 3,
        "t": True,
        "trigger": "warm",
    }
    assert rendered({"a": "$(object.name) $(object.namespace) $(object.uid)"}, fact(object_uid="u")) == {
        "a": "digits default u"
    }


def test_others_names_stay() -> None:
    spec = {"a": "$(POD_IP) $$(event.id) $(event.id $(eventXid) ${event.id}"}
    assert rendered(spec, fact()) == spec


def test_a_strangers_key_is_no_name_to_kubernetes() -> None:
    spec = {"command": ["$(store.key)"]}
    assert rendered(spec, stored("$(SECRET)"), "paddleJob") == {"command": ["$$(SECRET)"]}
    assert rendered(spec, stored("$(SECRET)")) == {"command": ["$(SECRET)"]}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("$(object.name)", ""),
        ("$(POD_IP)", ""),
        ("$$(store.key)", ""),
        ("$(store.key)", "$(store.key) has no value in this trigger"),
        ("$(event.key)", "$(event.key) has no value in this trigger"),
    ],
)
def test_template_problems_name_the_place_and_what_there_is(text: str, wrong: str) -> None:
    trigger = parsed(make_trigger(create={"sampleJob": {"spec": {"a": [text]}}}))
    problems = trigger.template.problems
    assert [wrong in p and "use one of $(event.count)" in p for p in problems] == ([True] if wrong else [])


def test_names_depend_on_trigger_and_event_alone_and_fit() -> None:
    digest = names.digest("uid", "event")
    assert (digest, len(digest)) == (names.digest("uid", "event"), names.DIGEST_LENGTH)
    others = {names.digest("uid", "event2"), names.digest("uid2", "event"), names.digest("uide", "vent")}
    assert digest not in others
    assert names.child_name("t" * 40, "uid", "event") == f"{'t' * 40}-{digest[:10]}"


def test_joined_gatherings_keep_the_newest_event_and_every_trigger_that_led_to_them() -> None:
    old, new = fact(chain=("a", "b")), fact(id="n", time=NOW + timedelta(seconds=1), chain=("b", "c"))
    for one, other in ((old, new), (new, old)):
        both = join(gathered(one, 2), gathered(other))
        assert (both.events, both.newest.id, both.newest.chain) == (3, "n", ("a", "b", "c"))


def test_a_status_reads_back_as_it_was_written() -> None:
    fired = TriggerAnnouncement(
        "TriggerFired",
        4,
        "2026-01-31T12:00:00.250Z",
        event="e",
        event_type=READY,
        events=2,
        created=StatusChild(kind="SampleJob", name="n", uid="u"),
    )
    failed = TriggerAnnouncement("TriggerFailed", 1, fired.at, True, reason="Forbidden", message="quota")
    full = TriggerStatus(
        observed_generation=2,
        conditions=(Condition("Ready", "True", "Active"),),
        announcements=(fired, failed),
        events=4,
        skipped=1,
        fired=2,
        active=1,
        last_fired_time=NOW,
        last_event="e",
        last_child=StatusChild(kind="SampleJob", name="n", uid="u"),
        waiting=gathered(stored(), 2),
        firing=gathered(fact(chain=("a", "b"))),
        refused=StatusRefused(generation=2, retry_at=NOW + timedelta(microseconds=1)),
        recent=("d1", "d2"),
    )
    rendered = full.render()
    read = parse_trigger_status({"status": json.loads(json.dumps(rendered))})
    assert read == full.model_copy(update={"reason": "Active"})
    assert merge_patch(rendered, full.render()) == {}
    emptied = merge_patch(rendered, TriggerStatus(recent=("d1",)).render())
    assert {n for n, v in emptied.items() if v is None} == {
        "announcements", "lastEvent", "lastFiredTime", "lastChild", "waiting", "firing", "refused",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ({}, ""),
        ({"Ready": ("True", "Active")}, "Active"),
        ({"Ready": ("True", "Active"), "LoopGuarded": ("True", "OwnWork")}, "OwnWork"),
        ({"LoopGuarded": ("True", "OwnWork"), "Blocked": ("True", "BusUnavailable")}, "BusUnavailable"),
        ({"Blocked": ("True", "BusUnavailable"), "Ready": ("False", "TemplateRefused")}, "TemplateRefused"),
        ({"Ready": ("True", "Active"), "Blocked": ("False", "Recovered")}, "Active"),
    ],
)
def test_the_reason_is_what_keeps_the_trigger_from_its_work(
    conditions: dict[str, tuple[str, str]], reason: str
) -> None:
    status = TriggerStatus(conditions=tuple(Condition(t, s, r, "why") for t, (s, r) in conditions.items()))
    assert (status.render()["reason"], status.render()["message"]) == (reason, "why" if reason else "")


def test_a_written_status_holds_no_confirmed_fact_but_the_last_of_its_name() -> None:
    facts = tuple(
        TriggerAnnouncement("TriggerFired", n, "2026-01-31T12:00:00Z", announced=n < 3) for n in range(5)
    )
    assert [a["attempt"] for a in TriggerStatus(announcements=facts).render()["announcements"]] == [3, 4]
    assert [a["attempt"] for a in TriggerStatus(announcements=facts[:3]).render()["announcements"]] == [2]


def test_a_merge_patch_names_what_is_gone_from_an_event() -> None:
    before = TriggerStatus(waiting=gathered(stored())).render()
    patch = merge_patch(before, TriggerStatus(waiting=gathered(fact())).render())
    assert patch["waiting"]["newest"]["storeKey"] is None
    assert patch["waiting"]["newest"]["objectName"] == "digits"


def read(body: bytes) -> tuple[Notification, ...]:
    return read_notifications("images", body, NOW)


def test_an_s3_record() -> None:
    [change] = read(s3_body(s3_record("dir/a+b%2Bc%C3%BC.png")))
    assert isinstance(change.data, ObjectCreated)
    assert (change.data.bucket, change.data.key, change.data.size) == ("images", "dir/a b+cü.png", 3)
    assert change.data.event_name == "s3:ObjectCreated:Put"
    assert change.time == NOW
    assert change.id.startswith("s3/images/")


def test_ids_differ_by_change_and_repeats_have_the_same() -> None:
    def id_of(key: str = "a", **parts: Any) -> str:
        [change] = read(s3_body(s3_record(key, **parts)))
        return str(change.id)

    assert id_of() == id_of()
    ids = [id_of(), id_of("b"), id_of(n=2), id_of(bucket="o"), id_of(event="s3:ObjectRemoved:Delete")]
    assert len(set(ids)) == len(ids)
    [one], [other] = (read_notifications(s, s3_body(s3_record("a")), NOW) for s in ("x", "y"))
    assert one.id != other.id


def test_changes_of_a_store_without_sequencers_differ_by_their_time() -> None:
    record = s3_record("a")
    del record["s3"]["object"]["sequencer"]
    [first] = read(s3_body(record))
    [again] = read(s3_body(record))
    record["eventTime"] = "2026-01-31T12:00:01Z"
    [later] = read(s3_body(record))
    assert first.id == again.id != later.id


def test_changes_of_one_object_have_one_subject() -> None:
    changes = read(s3_body(s3_record("a"), s3_record("a", n=2), s3_record("b")))
    assert [c.lane for c in changes].count(changes[0].lane) == 2


def filer(event: str, path: str, *, directory: bool = False, new_parent: str = "") -> bytes:
    """As SeaweedFS 4.48 posts it."""
    name = path.rpartition("/")[2]
    entry: dict[str, Any] = {
        "name": name,
        "chunks": [{"size": 6, "modified_ts_ns": 1795235146063536244}],
        "attributes": {"file_size": 6, "mtime": 1795235146, "md5": "sZRqySSS0jR8YjW00mERhA=="},
    }
    if directory:
        entry |= {"is_directory": True, "chunks": []}
    side = "old_entry" if event == "delete" else "new_entry"
    message: dict[str, Any] = {side: entry, "signatures": [1]}
    if event != "delete":
        message["new_parent_path"] = new_parent or path.rpartition("/")[0]
    return json.dumps({"event_type": event, "key": path, "message": message}).encode()


RENAMED = filer("rename", "/buckets/images/old", new_parent="/buckets/images/new")


@pytest.mark.parametrize(
    ("body", "bucket", "key", "event"),
    [
        (filer("create", "/buckets/images/train/a b.png"), "images", "train/a b.png", "ObjectCreated:Put"),
        (filer("update", "/buckets/images/a"), "images", "a", "ObjectCreated:Put"),
        (RENAMED, "images", "new/old", "ObjectCreated:Put"),
        (filer("delete", "/buckets/images/a"), "images", "a", "ObjectRemoved:Delete"),
    ],
)
def test_seaweedfs_notifies_of_objects(body: bytes, bucket: str, key: str, event: str) -> None:
    [change] = read(body)
    assert (change.data.bucket, change.data.key, change.data.event_name) == (bucket, key, event)
    assert read(body)[0].id == change.id


@pytest.mark.parametrize(
    "body",
    [
        filer("create", "/buckets/images", directory=True),
        filer("create", "/buckets/images/train", directory=True),
        filer("create", "/buckets/images/.uploads/6cba/0001.part"),
        filer("create", "/buckets/.system/owners/.complete"),
        filer("create", "/etc/seaweedfs/filer.conf"),
        filer("delete", "/buckets/images/train", directory=True),
        b'{"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "images"}',
        s3_body(),
    ],
)
def test_what_is_no_object_is_ignored(body: bytes) -> None:
    assert read(body) == ()


def test_a_time_without_zone_is_refused() -> None:
    record = s3_record("a") | {"eventTime": "2026-01-31T12:00:00"}
    with pytest.raises(Permanent, match=r"Records\[0\]\.eventTime: expected a time with its zone"):
        read(s3_body(record))


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_beyond_the_calendar_is_refused(text: str) -> None:
    record = s3_record("a") | {"eventTime": text}
    with pytest.raises(Permanent, match=r"Records\[0\]\.eventTime: .*between year 1 and 9999 in UTC"):
        read(s3_body(record))


@pytest.mark.parametrize("seconds", [10**18, -(10**18), 10**12, 253402300799])
def test_a_filer_time_beyond_the_calendar_is_refused(seconds: int) -> None:
    body = json.loads(filer("create", "/buckets/images/a"))
    body["message"]["new_entry"]["attributes"] |= {"mtime": seconds, "mtime_ns": 2**62}
    with pytest.raises(Permanent, match=r"message\.new_entry\.attributes\.mtime: must be a time between"):
        read(json.dumps(body).encode())


def test_a_size_beyond_64_bits_is_refused() -> None:
    record = s3_record("a")
    record["s3"]["object"]["size"] = 2**63
    with pytest.raises(Permanent, match=r"Records\[0\]\.s3\.object\.size"):
        read(s3_body(record))
    body = json.loads(filer("create", "/buckets/images/a"))
    body["message"]["new_entry"]["attributes"]["file_size"] = 2**63
    with pytest.raises(Permanent, match=r"message\.new_entry\.attributes\.file_size"):
        read(json.dumps(body).encode())


def test_filer_nonsense_names_the_field() -> None:
    with pytest.raises(Permanent, match="message: Field required"):
        read(b'{"event_type": "create", "key": "/buckets/a/b"}')


def test_what_becomes_due_after_the_children_were_read_from_the_cache_waits_for_a_list() -> None:
    trigger = parsed(make_trigger(concurrencyPolicy="Forbid", batch={"quietSeconds": 5}))
    status = TriggerStatus(events=1, waiting=gathered(fact()))
    seen = Observed(replace(trigger, status=status))
    a_moment_before, due = (NOW + timedelta(seconds=seconds) for seconds in (4.999, 5))
    assert not may_release(seen, a_moment_before)
    assert decide(replace(seen, is_cached=True), due).status.firing is None
    assert wait_before_release(replace(seen, is_cached=True), status, due) == CHILDREN_LIST_INTERVAL_SECONDS
    assert may_release(seen, due)
