"""Matching, rendering, ids and the reading of notifications, as tables."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddlewheel.contracts.base import write_time
from paddlewheel.contracts.crds import parse_trigger_status
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.triggers import READY, make_store_trigger, make_trigger, s3_body, s3_record
from trigger_controller.domain import names
from trigger_controller.domain.matching import concerns
from trigger_controller.domain.model import ChildRef, Gathered, Occurrence, Refused, Status, Trigger
from trigger_controller.domain.notifications import read_notifications
from trigger_controller.domain.parse import parse_trigger
from trigger_controller.domain.policies.intake import join
from trigger_controller.domain.render import render_creation, template_problems
from trigger_controller.domain.status import status_patch

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
STORED = "paddlewheel.objectstore.v1.ObjectCreated"
REMOVED = "paddlewheel.objectstore.v1.ObjectRemoved"


def parsed(manifest: dict[str, Any], uid: str = "t-uid") -> Trigger:
    """As the API server would give it back."""
    about = {"uid": uid, "generation": 1, "creationTimestamp": write_time(NOW)}
    manifest["metadata"] |= about
    return parse_trigger(manifest)


def fact(**parts: Any) -> Occurrence:
    return replace(Occurrence("e", READY, NOW, namespace="default", name="digits"), **parts)


def stored(key: str = "train/a.png", **parts: Any) -> Occurrence:
    return replace(Occurrence("e", STORED, NOW, source="images", bucket="images", key=key), **parts)


def fact_trigger(**spec: Any) -> Trigger:
    return parsed(make_trigger(when={"fact": {"type": READY, **spec}}))


def store_trigger(**where: Any) -> Trigger:
    when = {"source": "images", "bucket": "images", **where}
    return parsed(make_store_trigger(when={"objectStore": when}))


@pytest.mark.parametrize(
    ("trigger", "event", "wanted"),
    [
        (fact_trigger(), fact(), True),
        (fact_trigger(), fact(namespace="other"), False),
        (fact_trigger(), fact(type="paddlewheel.datasets.v1.SampleSetBound"), False),
        (fact_trigger(), fact(at=NOW - timedelta(seconds=4)), True),
        (fact_trigger(), fact(at=NOW - timedelta(seconds=6)), False),
        (fact_trigger(object={"name": "digits"}), fact(), True),
        (fact_trigger(object={"name": "mnist"}), fact(), False),
        (fact_trigger(object={"createdBy": "sync"}), fact(creator="sync"), True),
        (fact_trigger(object={"createdBy": "sync"}), fact(), False),
        (fact_trigger(object={"createdBy": "sync", "name": "x"}), fact(creator="sync"), False),
        (fact_trigger(), stored(), False),
        (store_trigger(), stored(), True),
        (store_trigger(), fact(), False),
        (store_trigger(), stored(source="others"), False),
        (store_trigger(), stored(bucket="others"), False),
        (store_trigger(), stored(type=REMOVED), False),
        (store_trigger(events=["ObjectRemoved"]), stored(type=REMOVED), True),
        (store_trigger(prefix="train/", suffix=".png"), stored(), True),
        (store_trigger(prefix="test/"), stored(), False),
        (store_trigger(suffix=".jpg"), stored(), False),
    ],
)
def test_which_events_concern_a_trigger(trigger: Trigger, event: Occurrence, wanted: bool) -> None:
    assert concerns(trigger, event) is wanted


def gathered(event: Occurrence, events: int = 1) -> Gathered:
    return Gathered(events, NOW, NOW, event)


def rendered(spec: dict[str, Any], event: Occurrence, kind: str = "sampleJob") -> Any:
    make = make_store_trigger if event.is_notification else make_trigger
    trigger = parsed(make("warm", create={kind: {"spec": spec}}))
    return render_creation(trigger, gathered(event, 3)).manifest["spec"]


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
    assert rendered({"a": "$(object.name) $(object.namespace) $(object.uid)"}, fact(uid="u")) == {
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
        ("$(store.key)", "$(store.key) has no value here"),
        ("$(event.key)", "$(event.key) has no value here"),
    ],
)
def test_template_problems_name_the_place_and_what_there_is(text: str, wrong: str) -> None:
    problems = template_problems(parsed(make_trigger(create={"sampleJob": {"spec": {"a": [text]}}})))
    assert [wrong in p and "use one of $(event.count)" in p for p in problems] == ([True] if wrong else [])


def test_names_depend_on_trigger_and_event_alone_and_fit() -> None:
    digest = names.digest("uid", "event")
    assert (digest, len(digest)) == (names.digest("uid", "event"), names.DIGEST_LENGTH)
    others = {names.digest("uid", "event2"), names.digest("uid2", "event"), names.digest("uide", "vent")}
    assert digest not in others
    assert names.child_name("t" * 40, digest) == f"{'t' * 40}-{digest[:10]}"


def test_joined_gatherings_keep_the_newest_event_and_every_trigger_that_led_to_them() -> None:
    old, new = fact(chain=("a", "b")), fact(id="n", at=NOW + timedelta(seconds=1), chain=("b", "c"))
    for one, other in ((old, new), (new, old)):
        both = join(gathered(one, 2), gathered(other))
        assert (both.events, both.newest.id, both.newest.chain) == (3, "n", ("a", "b", "c"))


def test_a_status_reads_back_as_it_was_written() -> None:
    full = Status(
        observed_generation=2,
        events=4,
        skipped=1,
        fired=2,
        active=1,
        last_fired=NOW,
        last_event="e",
        last_child=ChildRef("SampleJob", "n", "u"),
        waiting=gathered(stored(), 2),
        firing=gathered(fact(chain=("a", "b"))),
        refused=Refused(2, NOW),
        recent=("d1", "d2"),
    )
    patch = status_patch({}, full)
    parse_trigger_status({"status": patch})
    manifest = make_trigger() | {"status": patch}
    assert parsed(manifest).status == full
    assert status_patch(patch, full) == {}
    emptied = status_patch(patch, Status(recent=("d1",)))
    assert {n for n, v in emptied.items() if v is None} == {
        "lastFiredTime", "lastChild", "waiting", "firing", "refused",
    }  # fmt: skip


def test_a_merge_patch_names_what_is_gone_from_an_event() -> None:
    before = status_patch({}, Status(waiting=gathered(stored())))
    patch = status_patch(before, Status(waiting=gathered(fact())))
    assert patch["waiting"]["newest"]["storeKey"] is None
    assert patch["waiting"]["newest"]["objectName"] == "digits"


def read(body: bytes) -> Any:
    return read_notifications("images", body, NOW)


def test_an_s3_record() -> None:
    [told] = read(s3_body(s3_record("dir/a+b%2Bc%C3%BC.png")))
    assert (told.data.bucket, told.data.key, told.data.size) == ("images", "dir/a b+cü.png", 3)
    assert told.data.event_name == "s3:ObjectCreated:Put"
    assert told.time == NOW
    assert told.id.startswith("s3/images/")


def test_ids_tell_changes_apart_and_repeats_not() -> None:
    def id_of(key: str = "a", **parts: Any) -> str:
        [told] = read(s3_body(s3_record(key, **parts)))
        return str(told.id)

    assert id_of() == id_of()
    ids = [id_of(), id_of("b"), id_of(n=2), id_of(bucket="o"), id_of(event="s3:ObjectRemoved:Delete")]
    assert len(set(ids)) == len(ids)
    [one], [other] = (read_notifications(s, s3_body(s3_record("a")), NOW) for s in ("x", "y"))
    assert one.id != other.id


def test_a_store_without_sequencers_is_told_apart_by_its_time() -> None:
    record = s3_record("a")
    del record["s3"]["object"]["sequencer"]
    [first] = read(s3_body(record))
    [again] = read(s3_body(record))
    record["eventTime"] = "2026-01-31T12:00:01Z"
    [later] = read(s3_body(record))
    assert first.id == again.id != later.id


def test_one_object_has_one_lane() -> None:
    told = read(s3_body(s3_record("a"), s3_record("a", n=2), s3_record("b")))
    assert [t.object_digest for t in told].count(told[0].object_digest) == 2


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
def test_seaweedfs_tells_of_objects(body: bytes, bucket: str, key: str, event: str) -> None:
    [told] = read(body)
    assert (told.data.bucket, told.data.key, told.data.event_name) == (bucket, key, event)
    assert read(body)[0].id == told.id


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
def test_what_is_no_object_is_passed_over(body: bytes) -> None:
    assert read(body) == ()


def test_a_time_without_zone_is_refused() -> None:
    record = s3_record("a") | {"eventTime": "2026-01-31T12:00:00"}
    with pytest.raises(Permanent, match=r"Records\[0\]\.eventTime: a time with its zone"):
        read(s3_body(record))


def test_filer_nonsense_names_the_field() -> None:
    with pytest.raises(Permanent, match="message: Field required"):
        read(b'{"event_type": "create", "key": "/buckets/a/b"}')
