"""Events and records on the wire: exact bytes, and every kind of nonsense."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from paddlewheel.contracts.base import Bytes, WireModel, json_name, write_time
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.cache_v1 import (
    PartitionTotals,
    RemoveOperation,
    RunPhase,
    RunSpec,
    RunState,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.jobs_v1 import JobRunning, JobSucceeded, RoleCounts
from paddlewheel.contracts.wire import UnknownFact, decode, encode, from_json, to_json
from paddlewheel.core.errors import Permanent

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Blob(WireModel):
    data: Bytes = b""


def make_running(**over: object) -> Event:
    job = ObjectRef(namespace="team-a", name="digits", uid="uid-1", generation=3)
    data = JobRunning(job=job, roles={"worker": RoleCounts(wanted=2, running=2)})
    fields = {"id": "uid-1/running/0", "source": "job-controller", "namespace": "team-a", "uid": "uid-1"}
    return make_event(data, **{**fields, "time": AT, **over})  # type: ignore[arg-type]


# --- records


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (RunState(), b"{}"),
        (RunState(files_total=2**53 + 1), b'{"filesTotal":"9007199254740993"}'),
        (RunState(term=7), b'{"term":7}'),
        (RunState(phase=RunPhase.FAILED), b'{"phase":"RUN_PHASE_FAILED"}'),
        (RunState(heartbeat=AT), b'{"heartbeat":"2026-01-02T03:04:05.678Z"}'),
        (RunState(listed=True, cached_percent=99.5), b'{"listed":true,"cachedPercent":99.5}'),
        (RunState(cached_percent=math.inf), b'{"cachedPercent":"Infinity"}'),
        (RunState(cached_percent=-math.inf), b'{"cachedPercent":"-Infinity"}'),
        (RunState(cached_percent=math.nan), b'{"cachedPercent":"NaN"}'),
        (
            RunState(totals=[PartitionTotals(files=1), PartitionTotals()]),
            b'{"totals":[{"files":"1"},{}]}',
        ),
        (RunSpec(remove=RemoveOperation()), b'{"remove":{}}'),
        (JobSucceeded(results={"acc": 1.0}), b'{"results":{"acc":1.0}}'),
        (Blob(data=b"\xff\xfe"), b'{"data":"//4="}'),
    ],
    ids=lambda v: v.decode() if isinstance(v, bytes) else "",
)
def test_proto3_json(model: WireModel, text: bytes) -> None:
    assert to_json(model) == text
    assert to_json(from_json(type(model), text)) == text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b'{"filesTotal": 5}', RunState(files_total=5)),
        (b'{"files_total": "5"}', RunState(files_total=5)),
        (b'{"term": "7"}', RunState(term=7)),
        (b'{"term": 7.0}', RunState(term=7)),
        (b'{"term": "1e2"}', RunState(term=100)),
        (b'{"cachedPercent": 7}', RunState(cached_percent=7.0)),
        (b'{"cachedPercent": "7.5"}', RunState(cached_percent=7.5)),
        (b'{"phase": 3}', RunState(phase=RunPhase.FAILED)),
        (b'{"phase": "RUN_PHASE_OF_TOMORROW"}', RunState()),
        (b'{"phase": 99}', RunState()),
        (b'{"runId": null, "heartbeat": null, "totals": null}', RunState()),
        (b'{"tomorrow": {"any": 1}}', RunState()),
        (b'{"heartbeat": "2026-01-02T04:04:05.678+01:00"}', RunState(heartbeat=AT)),
        (b'{"heartbeat": "2026-01-02T03:04:05.678000999Z"}', RunState(heartbeat=AT)),
    ],
    ids=lambda v: v.decode() if isinstance(v, bytes) else "",
)
def test_all_spellings_are_read(text: bytes, wanted: RunState) -> None:
    assert from_json(RunState, text) == wanted


@pytest.mark.parametrize("text", [b'{"data": "__4"}', b'{"data": "//4="}', b'{"data": "__4="}'])
def test_both_base64_alphabets_are_read(text: bytes) -> None:
    assert from_json(Blob, text).data == b"\xff\xfe"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "not JSON"),
        (b"nonsense", "not JSON"),
        (b"[]", "dictionary"),
        (b"null", "dictionary"),
        (b'{"term": "seven"}', "term"),
        (b'{"term": 1.5}', "term"),
        (b'{"term": true}', "term"),
        (b'{"term": 2147483648}', "term"),
        (b'{"filesTotal": "9223372036854775808"}', "filesTotal"),
        (b'{"listed": "true"}', "listed"),
        (b'{"cachedPercent": "much"}', "cachedPercent"),
        (b'{"cachedPercent": true}', "cachedPercent"),
        (b'{"heartbeat": "yesterday"}', "heartbeat"),
        (b'{"heartbeat": "2026-01-02T03:04:05"}', "heartbeat"),
        (b'{"heartbeat": "2026-13-02T03:04:05Z"}', "heartbeat"),
        (b'{"heartbeat": 5}', "heartbeat"),
        (b'{"heartbeat": "0001-01-01T00:00:00+14:00"}', "between year 1 and 9999 in UTC"),
        (b'{"heartbeat": "9999-12-31T23:59:59-14:00"}', "between year 1 and 9999 in UTC"),
        (b'{"phase": true}', "phase"),
        (b'{"runId": 5}', "runId"),
        (b'{"totals": [{"files": "x"}]}', "totals.0.files"),
    ],
    ids=lambda v: v.decode() if isinstance(v, bytes) else "",
)
def test_what_does_not_fit_is_refused_and_named(text: bytes, complaint: str) -> None:
    with pytest.raises(Permanent, match="MalformedJson") as caught:
        from_json(RunState, text)
    assert complaint in caught.value.message


def test_one_operation_only() -> None:
    with pytest.raises(ValidationError, match="operation: set only one of sync, warmup"):
        RunSpec(sync=SyncOperation(), warmup=WarmupOperation())


def test_models_are_frozen_and_take_attribute_names() -> None:
    state = RunState(run_id="r")
    with pytest.raises(ValidationError, match="frozen"):
        state.run_id = "other"  # type: ignore[misc]
    assert RunState() == RunState(run_id="")
    assert RunState().totals is not RunState().totals


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="zone"):
        RunState(heartbeat=AT.replace(tzinfo=None))


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (AT.replace(microsecond=0), "2026-01-02T03:04:05Z"),
        (AT, "2026-01-02T03:04:05.678Z"),
        (AT.replace(microsecond=1), "2026-01-02T03:04:05.000001Z"),
        (AT.astimezone(timezone(timedelta(hours=8))), "2026-01-02T03:04:05.678Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
    ],
)
def test_times_are_written_in_utc(moment: datetime, text: str) -> None:
    assert write_time(moment) == text


@pytest.mark.parametrize(
    ("name", "json"), [("run_id", "runId"), ("a_1_b", "a1B"), ("no_https", "noHttps"), ("x__y", "xY")]
)
def test_json_names(name: str, json: str) -> None:
    assert json_name(name) == json


# --- events


def test_an_event_on_the_wire() -> None:
    body, headers = encode(make_running(traceparent=TRACE))
    assert body == (
        b'{"job":{"namespace":"team-a","name":"digits","uid":"uid-1","generation":"3"},'
        b'"roles":{"worker":{"wanted":2,"running":2}}}'
    )
    assert headers == {
        "ce-specversion": "1.0",
        "ce-id": "uid-1/running/0",
        "ce-type": "paddlewheel.jobs.v1.JobRunning",
        "ce-source": "job-controller",
        "ce-subject": "pw.evt.jobs.job.running.v1.team-a.uid-1",
        "ce-time": "2026-01-02T03:04:05.678Z",
        "content-type": "application/json",
        "Nats-Msg-Id": "uid-1/running/0",
        "traceparent": TRACE,
    }


@pytest.mark.parametrize("trace", ["", TRACE])
def test_what_is_encoded_can_be_decoded(trace: str) -> None:
    event = make_running(traceparent=trace)
    assert decode(event.subject, *encode(event)) == event


def test_an_event_is_known_by_type_and_subject() -> None:
    event = make_running()
    assert (event.type, event.subject) == (
        "paddlewheel.jobs.v1.JobRunning",
        "pw.evt.jobs.job.running.v1.team-a.uid-1",
    )


def test_a_record_is_no_event() -> None:
    with pytest.raises(Permanent, match="is a record"):
        make_event(RunSpec(), id="i", source="s", namespace="n", uid="u", time=AT)


SUBJECT = make_running().subject
Spoil = Callable[[str, bytes, dict[str, str]], tuple[str, bytes, dict[str, str]]]


def without(header: str) -> Spoil:
    return lambda s, d, h: (s, d, {k: v for k, v in h.items() if k != header})


def with_header(name: str, value: str) -> Spoil:
    return lambda s, d, h: (s, d, {**h, name: value})


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda s, d, h: (s, b"\x00\xff", h), "not JSON"),
        (lambda s, d, h: (s, b'"text"', h), "dictionary"),
        (lambda s, d, h: (s, b'{"roles": []}', h), "roles"),
        (without("ce-id"), "ce-id"),
        (without("ce-type"), "ce-type"),
        (without("ce-source"), "ce-source"),
        (without("ce-time"), "ce-time"),
        (without("ce-specversion"), "ce-specversion"),
        (with_header("ce-id", ""), "ce-id"),
        (with_header("ce-time", "noon"), "ce-time"),
        (with_header("ce-time", "0001-01-01T00:00:00+14:00"), "between year 1 and 9999 in UTC"),
        (with_header("ce-time", "9999-12-31T23:59:59-14:00"), "between year 1 and 9999 in UTC"),
        (with_header("ce-specversion", "0.3"), "ce-specversion"),
        (with_header("ce-type", "com.example.Thing"), "unknown"),
        (with_header("ce-type", "paddlewheel.jobs.v2.JobRunning"), "unknown"),
        (with_header("ce-type", "paddlewheel.cache.v1.RunSpec"), "unknown"),
        (with_header("ce-type", "paddlewheel.jobs.v1.JobFailed"), "does not belong"),
        (lambda s, d, h: (s.replace("running", "failed"), d, h), "does not belong"),
        (lambda s, d, h: (s.replace(".v1.", ".v2."), d, h), "does not belong"),
        (lambda s, d, h: ("pw.evt.jobs", d, h), "pw.evt."),
    ],
)
def test_nonsense_is_a_malformed_event_that_says_what_is_wrong(spoil: Spoil, complaint: str) -> None:
    with pytest.raises(Permanent) as caught:
        decode(*spoil(SUBJECT, *encode(make_running())))
    assert caught.value.reason == "MalformedEvent"
    assert complaint in caught.value.message


NEWER = {
    "another fact of a job": (
        "paddlewheel.jobs.v1.JobDefragmented",
        "pw.evt.jobs.job.defragmented.v1.default.u1",
    ),
    "of another entity": (
        "paddlewheel.jobs.v1.QuotaRanOut",
        "pw.evt.jobs.quota.ran-out.v1.default.u1",
    ),
    "of the next version": ("paddlewheel.jobs.v2.JobRunning", "pw.evt.jobs.job.running.v2.default.u1"),
    "of another context": ("paddlewheel.hub.v1.ModelPulled", "pw.evt.hub.model.pulled.v1.default.u1"),
    "from outside": (
        "paddlewheel.objectstore.v1.ObjectTagged",
        "pw.src.objectstore.object.tagged.v1.images.d1",
    ),
}


@pytest.mark.parametrize(("type_", "subject"), NEWER.values(), ids=NEWER)
def test_a_fact_of_a_newer_release_is_unknown_and_not_malformed(type_: str, subject: str) -> None:
    _, headers = encode(make_running())
    headers["ce-type"] = type_
    with pytest.raises(UnknownFact) as caught:
        decode(subject, b'{"anything": {"at": "all"}}', headers)
    assert (caught.value.type, caught.value.reason) == (type_, "UnknownFact")


@pytest.mark.parametrize(
    ("subject", "body", "changed"),
    [
        ("pw.evt.jobs.job.defragmented.v1.default.u1", b"{nonsense", {}),
        ("pw.evt.jobs.job.defragmented.v1.default.u1", b"[]", {}),
        ("pw.evt.jobs.job.defragmented.v1.default.u1", b"{}", {"ce-id": ""}),
        ("pw.evt.jobs.job.defragmented.v1.default.u1", b"{}", {"ce-time": "noon"}),
        ("pw.evt.jobs.job.defragmented.v1.default.u1", b"{}", {"ce-specversion": "2.0"}),
        ("pw.evt.jobs.job.defragmented.v1.default.u1", b"{}", {"ce-type": "com.example.JobDefragmented"}),
        ("pw.evt.jobs.job.running.v1.default.u1", b"{}", {}),
        ("pw.evt.jobs.job.defragmented.v2.default.u1", b"{}", {}),
        ("pw.evt.jobs.job.defragmented.v1.default", b"{}", {}),
        ("pw.evt.jobs.job.defragmented.v1.default.u 1", b"{}", {}),
        ("pw.cmd.jobs.job.defragmented.v1.default.u1", b"{}", {}),
        ("pw.src.jobs.job.defragmented.v1.default.u1", b"{}", {}),
        ("pw.evt.jobs.job.running.v1.default.u1", b"{}", {"ce-type": "paddlewheel.jobs.v1.Jobrunning"}),
    ],
)
def test_what_is_malformed_is_so_whether_or_not_its_type_is_known(
    subject: str, body: bytes, changed: dict[str, str]
) -> None:
    _, headers = encode(make_running())
    headers |= {"ce-type": "paddlewheel.jobs.v1.JobDefragmented"} | changed
    with pytest.raises(Permanent) as caught:
        decode(subject, body, headers)
    assert caught.value.reason == "MalformedEvent"
