"""What bus-auth hands on for an agent: requests for messages of its own set, and nothing else."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.set_reads import (
    BATCH_BYTES,
    LARGEST_BATCH,
    MAX_BODY,
    Read,
    busy,
    parse_read,
    read_subjects,
    refusal,
    shown_info,
)
from paddlewheel.bus.nats.api import ask_api
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.bus.streams import CACHE, NODES, RUNS, overlaps
from paddlewheel.core.errors import Permanent, Retry

MINE, THEIRS = "uid-a", "uid-b"
PREFIX = {RUNS.name: "$KV.pw_cache_runs", NODES.name: "$KV.pw_cache_nodes"}
SINGLES = sorted(each for each in read_subjects(MINE) if ".MSG.GET." in each)
BATCHES = sorted(each for each in read_subjects(MINE) if ".DIRECT.GET." in each)
INFOS = sorted(each for each in read_subjects(MINE) if ".INFO." in each)

Tokens = st.lists(st.sampled_from([MINE, THEIRS, "*", ">", "run", "spec", "v1", "", "a b", "é"]), max_size=7)
Heads = st.sampled_from([*PREFIX.values(), "pw.evt.cache", "pw.evt", "$KV", ">", ""])
Patterns = st.builds(lambda head, tokens: ".".join([head, *tokens]), Heads, Tokens)
Bodies = st.dictionaries(
    st.sampled_from(["last_by_subj", "next_by_subj", "seq", "batch", "multi_last", "start_time"]),
    Patterns | st.integers() | st.none() | st.lists(Patterns, max_size=2),
)


def own(stream: str) -> str:
    """A subject of the set's."""
    return f"pw.evt.cache.run.ended.v1.ns.{MINE}" if stream == CACHE.name else f"{PREFIX[stream]}.{MINE}.x"


def everything_of(uid: str) -> list[str]:
    """Patterns that match all messages of a set."""
    return [f"{prefix}.{uid}.>" for prefix in PREFIX.values()] + [f"pw.evt.cache.*.*.*.*.{uid}"]


def pattern_of(read: Read) -> str:
    body = json.loads(read.body)
    return str(body.get("last_by_subj") or body["next_by_subj"])


@given(st.sampled_from([*SINGLES, *BATCHES]), Bodies | st.builds(lambda p: {"last_by_subj": p}, Patterns))
def test_what_is_handed_on_matches_nothing_of_another_set(subject: str, body: dict[str, object]) -> None:
    with suppress(Permanent):
        pattern = pattern_of(parse_read(subject, json.dumps(body).encode()))
        assert not any(overlaps(pattern, each) for each in everything_of(THEIRS))
        assert any(overlaps(pattern, each) for each in everything_of(MINE))


@given(st.sampled_from([*SINGLES, *BATCHES, *INFOS]), st.binary(max_size=64))
def test_whatever_is_sent_is_refused_or_read(subject: str, body: bytes) -> None:
    with suppress(Permanent):
        parse_read(subject, body)


@pytest.mark.parametrize("subject", SINGLES)
def test_a_single_message_of_the_set_is_asked_for(subject: str) -> None:
    stream = subject.rpartition(".")[2]
    for body in ({"last_by_subj": own(stream)}, {"next_by_subj": own(stream), "seq": 7}):
        read = parse_read(subject, json.dumps(body).encode())

        assert (read.subject, read.is_batch) == (f"$JS.API.STREAM.MSG.GET.{stream}", False)
        assert json.loads(read.body) == body


@pytest.mark.parametrize("subject", BATCHES)
@pytest.mark.parametrize("keys", ["*.spec", "run.>", ">", "*", "run.part-0"])
def test_a_batch_of_the_set_is_asked_for_and_bounded(subject: str, keys: str) -> None:
    stream = subject.rpartition(".")[2]
    body = {"batch": LARGEST_BATCH, "next_by_subj": f"{PREFIX[stream]}.{MINE}.{keys}", "seq": 1}

    read = parse_read(subject, json.dumps(body).encode())

    assert (read.subject, read.is_batch) == (f"$JS.API.DIRECT.GET.{stream}", True)
    assert json.loads(read.body) == {**body, "max_bytes": BATCH_BYTES}


@pytest.mark.parametrize(
    "pattern",
    [
        f"$KV.pw_cache_runs.{THEIRS}.run.spec",
        "$KV.pw_cache_runs.*.run.spec",
        "$KV.pw_cache_runs.>",
        "$KV.*.uid-a.run",
        f"$KV.pw_cache_nodes.{MINE}.0",
        f"$KV.pw_cache_runs.{MINE}",
        f"$KV.pw_cache_runs.{MINE}x.run",
        f"$KV.pw_cache_runs.{MINE}.>.x",
        f"$KV.pw_cache_runs.{MINE}.run\n",
        f"$KV.pw_cache_runs.{MINE}..run",
        ">",
        "",
        f"$KV.pw_cache_runs.{MINE}.{'x' * 512}",
    ],
)
def test_patterns_that_leave_the_set_are_refused(pattern: str) -> None:
    with pytest.raises(Permanent, match="ReadRefused"):
        parse_read(
            f"pw.read.{MINE}.STREAM.MSG.GET.{RUNS.name}", json.dumps({"last_by_subj": pattern}).encode()
        )


@pytest.mark.parametrize(
    "pattern", ["pw.evt.cache.>", f"pw.evt.cache.*.*.v1.ns.{THEIRS}", "pw.evt.cache.*.*.*.*.*"]
)
def test_facts_of_other_sets_are_refused(pattern: str) -> None:
    with pytest.raises(Permanent, match="ReadRefused"):
        parse_read(
            f"pw.read.{MINE}.STREAM.MSG.GET.{CACHE.name}",
            json.dumps({"next_by_subj": pattern, "seq": 1}).encode(),
        )


@pytest.mark.parametrize(
    "body",
    [
        {"seq": 1},
        {"last_by_subj": own(RUNS.name), "seq": 1},
        {"last_by_subj": own(RUNS.name), "next_by_subj": own(RUNS.name), "seq": 1},
        {"next_by_subj": own(RUNS.name)},
        {"next_by_subj": own(RUNS.name), "seq": -1},
        {"next_by_subj": own(RUNS.name), "seq": "1"},
        {"next_by_subj": own(RUNS.name), "seq": True},
        {"next_by_subj": own(RUNS.name), "seq": 1 << 64},
        {"next_by_subj": own(RUNS.name), "seq": 1, "batch": 9, "multi_last": [own(RUNS.name)]},
        {"multi_last": [own(RUNS.name)]},
        {"batch": LARGEST_BATCH + 1, "next_by_subj": own(RUNS.name), "seq": 1},
        {"batch": 0, "next_by_subj": own(RUNS.name), "seq": 1},
        {"batch": 9, "next_by_subj": own(RUNS.name), "seq": 1, "start_time": "2026-01-01T00:00:00Z"},
        {"Last_By_Subj": own(RUNS.name)},
        {},
        [],
        None,
    ],
)
def test_other_requests_are_refused(body: object) -> None:
    for call in ("STREAM.MSG.GET", "DIRECT.GET"):
        with pytest.raises(Permanent, match="ReadRefused"):
            parse_read(f"pw.read.{MINE}.{call}.{RUNS.name}", json.dumps(body).encode())


def test_a_key_that_stands_twice_reaches_the_server_once() -> None:
    """Parsers differ in which of two they believe."""
    subject = own(RUNS.name)
    body = f'{{"last_by_subj": "$KV.pw_cache_runs.{THEIRS}.x", "last_by_subj": "{subject}"}}'.encode()

    read = parse_read(f"pw.read.{MINE}.STREAM.MSG.GET.{RUNS.name}", body)

    assert read.body == json.dumps({"last_by_subj": subject}).encode()


def test_a_huge_body_is_refused() -> None:
    body = json.dumps({"last_by_subj": own(RUNS.name)}).encode() + b" " * MAX_BODY

    with pytest.raises(Permanent, match=f"more than {MAX_BODY} bytes"):
        parse_read(f"pw.read.{MINE}.STREAM.MSG.GET.{RUNS.name}", body)


@pytest.mark.parametrize("call", ["STREAM.DELETE", "STREAM.PURGE", "CONSUMER.CREATE", "DIRECT.GET.x", ""])
def test_other_calls_are_refused(call: str) -> None:
    with pytest.raises(Permanent, match="no such read"):
        parse_read(f"pw.read.{MINE}.{call}.{RUNS.name}", b"")


@pytest.mark.parametrize("stream", ["PW_WORK", "PW_JOBS", "KV_pw_triggers"])
def test_other_streams_are_refused(stream: str) -> None:
    with pytest.raises(Permanent, match="no such read"):
        parse_read(f"pw.read.{MINE}.STREAM.INFO.{stream}", b"")


@pytest.mark.parametrize("body", [b"{}", b'{"subjects_filter": ">"}', b'{"deleted_details": true}'])
def test_a_stream_is_not_asked_for_its_subjects(body: bytes) -> None:
    assert parse_read(INFOS[0], b"").is_info
    with pytest.raises(Permanent, match="ReadRefused"):
        parse_read(INFOS[0], body)


def test_of_a_streams_state_only_its_age_and_sequences_are_told() -> None:
    state = {
        "first_seq": 1,
        "last_seq": 9,
        "messages": 9,
        "bytes": 99,
        "num_subjects": 9,
        "subjects": {"x": 1},
    }
    answer = {"type": "t", "created": "2026", "state": state, "config": {}, "cluster": {}, "ts": "2026"}

    assert json.loads(shown_info(json.dumps(answer).encode())) == {
        "type": "t",
        "created": "2026",
        "state": {"first_seq": 1, "last_seq": 9},
    }
    assert json.loads(shown_info(b'{"error": {"code": 404}, "total": 9}')) == {"error": {"code": 404}}


def test_a_refusal_looks_like_jetstreams() -> None:
    assert refusal(BATCHES[0], "why") == ({"Status": "408", "Description": "Bad Request: why"}, b"")
    headers, body = refusal(SINGLES[0], "why")
    assert (headers, json.loads(body)["error"]["code"], json.loads(body)["error"]["err_code"]) == (
        {},
        400,
        10003,
    )


async def test_busy_is_never_taken_for_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is asked once gets to see it."""
    connection = Connection(Access("nats://127.0.0.1:1"), "agent")

    async def request(subject: str, data: bytes) -> bytes:
        return busy(subject)[1]

    monkeypatch.setattr(connection, "request", request)

    with pytest.raises(Retry, match="too much to do"):
        await ask_api(connection, "STREAM.INFO", RUNS.name)
