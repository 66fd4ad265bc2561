"""What bus-auth publishes for an agent: records and chunks of its own set, and nothing else."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.bus.admin.set_reads import busy, is_busy, set_of
from paddlewheel.bus.admin.set_writes import (
    MAX_RECORD,
    full,
    is_asked_for,
    is_unknown,
    is_write,
    largest,
    parse_write,
    refusal,
    too_large,
    unknown,
    write_prefix,
    write_subjects,
)
from paddlewheel.bus.markers import DELETED, DONE, EXPECTED
from paddlewheel.bus.nats.publish import _receipt
from paddlewheel.bus.streams import BUS_FULL, MAX_MESSAGE, NODES, RUNS, WORK, matches
from paddlewheel.contracts.run_keys import NodeKey, RunKey
from paddlewheel.contracts.subjects import work_subject
from paddlewheel.core.errors import Permanent, Retry

MINE, THEIRS = "uid-a", "uid-b"
RUN = RunKey(MINE, "run-1")
STATE, PART = f"$KV.pw_cache_runs.{RUN.state}", f"$KV.pw_cache_runs.{RUN.part(999)}"
NODE = f"$KV.pw_cache_nodes.{NodeKey(MINE, 999)}"
CHUNK = work_subject(MINE, "run-1", 999, 123456)
OWN = {STATE: RUNS.name, PART: RUNS.name, NODE: NODES.name, CHUNK: WORK.name}

Tokens = st.lists(
    st.sampled_from(
        [MINE, THEIRS, "run", "state", "spec", "cancel", "part-0", "0", "00", "v1", "*", ">", "é"]
    ),
    max_size=6,
)
Heads = st.sampled_from(["$KV.pw_cache_runs", "$KV.pw_cache_nodes", "pw.work.cache"])
Subjects = st.builds(lambda head, tokens: ".".join([head, *tokens]), Heads, Tokens)


def asked(subject: str, uid: str = MINE) -> str:
    return f"{write_prefix(uid)}.{subject}"


@pytest.mark.parametrize("subject", OWN)
def test_records_and_chunks_of_the_set_are_published_as_they_are(subject: str) -> None:
    write = parse_write(asked(subject), {}, b"data")

    assert (write.set_uid, write.stream, write.subject) == (MINE, OWN[subject], subject)
    assert (write.headers, write.body) == ({}, b"data")
    assert matches(write.everything, subject)
    assert not matches(write.everything, subject.replace(MINE, THEIRS))


@given(Subjects, st.sampled_from([MINE, THEIRS]))
def test_nothing_is_published_but_what_agents_write(subject: str, uid: str) -> None:
    with suppress(Permanent):
        written = parse_write(asked(subject, uid), {}, b"x").subject
        assert written == subject
        assert f".{uid}." in written
        assert "spec" not in written.split(".")[-1]
        assert "cancel" not in written.split(".")[-1]
        assert any(matches(each, subject) for each in write_subjects(uid))


@pytest.mark.parametrize(
    "subject",
    [
        *(each.replace(MINE, THEIRS) for each in OWN),
        f"$KV.pw_cache_runs.{RUN.spec}",
        f"$KV.pw_cache_runs.{RUN.cancel}",
        f"$KV.pw_cache_runs.{RUN.part(1000)}",
        f"$KV.pw_cache_runs.{MINE}.run-1.part-01",
        f"$KV.pw_cache_runs.{MINE}.run-1.part--1",
        f"$KV.pw_cache_runs.{MINE}.run-1.more",
        f"$KV.pw_cache_runs.{MINE}.run-1.part-0.more",
        f"$KV.pw_cache_runs.{MINE}.{'r' * 600}.state",
        f"$KV.pw_cache_nodes.{MINE}.01",
        f"$KV.pw_cache_nodes.{MINE}.1000",
        f"$KV.pw_cache_nodes.{MINE}.",
        f"$KV.pw_triggers.{MINE}.event",
        work_subject(MINE, "run-1", 1000, 0),
        CHUNK.replace("v1", "v2"),
        CHUNK.replace("999", "0999"),
        CHUNK.replace(".123456.", f".{'9' * 30}."),
        f"{CHUNK}.more",
        "pw.work.>",
        f"pw.evt.cache.run.ended.v1.ns.{MINE}",
        f"$JS.API.STREAM.PURGE.{WORK.name}",
    ],
)
def test_what_is_no_record_or_chunk_of_the_set_is_refused(subject: str) -> None:
    with pytest.raises(Permanent, match="WriteRefused"):
        parse_write(asked(subject), {}, b"x")


@pytest.mark.parametrize(
    ("subject", "headers", "body"),
    [
        (STATE, {EXPECTED: "0"}, b"x"),
        (NODE, {EXPECTED: "18446744073709551615"}, b""),
        (STATE, DELETED, b""),
        (CHUNK, DONE, b""),
    ],
)
def test_what_agents_say_beside_is_published(subject: str, headers: dict[str, str], body: bytes) -> None:
    about = {"Nats-Request-Info": '{"acc": "cache-runtime"}'}

    write = parse_write(asked(subject), {**headers, **about}, body)

    assert (write.headers, write.body) == (headers, body)
    assert write.ends_work is (headers == DONE)


@pytest.mark.parametrize(
    ("subject", "headers", "body"),
    [
        *((each, {name: "1"}, b"x") for each in OWN for name in ("Nats-Rollup", "Nats-Msg-Id", "Nats-TTL")),
        (STATE, {EXPECTED: "-1"}, b"x"),
        (STATE, {EXPECTED: "0x1"}, b"x"),
        (STATE, {EXPECTED: "0", "Nats-TTL": "1h"}, b""),
        (STATE, {EXPECTED.lower(): "0"}, b"x"),
        (STATE, DELETED, b"x"),
        (STATE, DONE, b""),
        (STATE, {**DELETED, "Nats-TTL": "never"}, b""),
        (STATE, {"KV-Operation": "DEL"}, b""),
        (CHUNK, DONE, b"x"),
        (CHUNK, {}, b""),
        (CHUNK, {"Nats-TTL": "never"}, b""),
        (CHUNK, {EXPECTED: "0"}, b"x"),
    ],
)
def test_whatever_else_is_said_beside_is_refused(subject: str, headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(Permanent, match="headers"):
        parse_write(asked(subject), headers, body)


def test_each_kind_has_a_size() -> None:
    sizes = {subject: largest(asked(subject)) for subject in OWN}

    assert sizes == {STATE: MAX_RECORD, PART: MAX_RECORD, NODE: 16 * 1024, CHUNK: MAX_MESSAGE}


def test_a_request_is_asked_where_the_server_lets_no_other_set_ask() -> None:
    for subject in OWN:
        assert set_of(asked(subject)) == MINE
        assert is_write(asked(subject).encode())
        assert any(matches(each, asked(subject)) for each in write_subjects(MINE).values())
        assert not any(matches(each, asked(subject)) for each in write_subjects(THEIRS).values())
        assert is_asked_for(subject)
    assert not is_asked_for(f"pw.evt.cache.run.ended.v1.ns.{MINE}")


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (full(), Retry, BUS_FULL),
        (too_large(STATE), Permanent, "TooLarge"),
        (refusal(STATE, "why"), Retry, "BusRefused"),
        (busy(asked(STATE)), Retry, "BusRefused"),
    ],
)
def test_answers_are_read_as_those_of_a_stream(
    answer: tuple[dict[str, str], bytes], kind: type[Retry], reason: str
) -> None:
    with pytest.raises(kind) as raised:
        _receipt(STATE, answer[1])

    assert raised.value.reason == reason


def test_what_was_not_begun_and_what_nobody_knows_are_told_apart() -> None:
    (not_begun, _), (not_known, body) = busy(asked(STATE)), unknown(asked(STATE))

    assert (is_busy(not_begun), is_unknown(not_begun)) == (True, False)
    assert (is_busy(not_known), is_unknown(not_known)) == (False, True)
    assert json.loads(body)["error"]["code"] == 504
