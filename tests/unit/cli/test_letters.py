"""How a dead letter is shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from paddlewheel.bus.dead_letters import DeadLetter
from paddlewheel.cli.letters import as_json, page, payload, preview, row
from paddlewheel.cli.output import age, amount

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_letter(data: bytes, *, is_cut: bool = False) -> DeadLetter:
    return DeadLetter(
        sequence=17,
        durable="trigger-controller-datasets",
        reason="MalformedEvent",
        message="not JSON",
        attempts=1,
        stream="PW_DATASETS",
        source_sequence=204,
        subject="pw.evt.datasets.sampleset.ready.v1.team-a.u1",
        published_at=NOW - timedelta(minutes=6),
        parked_at=NOW - timedelta(minutes=5),
        data=data,
        headers={"ce-id": "u1/ready/1"},
        is_cut=is_cut,
    )


def test_a_row_says_where_it_lies_why_and_how_it_begins() -> None:
    assert row(make_letter(b'{"a": 1}'), NOW) == (
        "17", "trigger-controller-datasets", "5m", "MalformedEvent", "1",
        "pw.evt.datasets.sampleset.ready.v1.team-a.u1", '{"a": 1}',
    )  # fmt: skip


def test_a_page_says_why_with_headers_and_payload() -> None:
    assert list(page(make_letter(b'{"a":1}', is_cut=True), NOW)) == [
        "dead letter 17",
        "  durable    trigger-controller-datasets",
        "  reason     MalformedEvent: not JSON",
        "  attempts   1",
        "  parked     2026-01-02 02:59:05 UTC, 5m ago",
        "  published  2026-01-02 02:58:05 UTC",
        "  from       PW_DATASETS 204",
        "  subject    pw.evt.datasets.sampleset.ready.v1.team-a.u1",
        "headers",
        "  ce-id: u1/ready/1",
        "payload, 7 B, only its beginning was kept",
        "  {",
        '    "a": 1',
        "  }",
    ]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", ["(empty)"]),
        (b"[1]", ["[", "  1", "]"]),
        ("grüße\nan alle".encode(), ["grüße", "an alle"]),
        (b"\x00\x01PW", ["00000000  00 01 50 57                                      ..PW"]),
        (b"\x1b[31mred", ["00000000  1b 5b 33 31 6d 72 65 64                          .[31mred"]),
    ],
)
def test_a_payload_is_shown_as_what_it_is(data: bytes, lines: list[str]) -> None:
    assert payload(data) == lines


def test_a_large_payload_is_cut_and_says_so() -> None:
    shown = payload(b"\xff" * 100_000)
    assert len(shown) == 4096 / 16 + 1
    assert shown[-1] == "... 95,904 more bytes; use -o json for all"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"not json\nat all", "not json at all"),
        (b"x" * 50, "x" * 37 + "..."),
        ("ü".encode() * 60, "ü" * 37 + "..."),
        (b"\x00\xff", "0x00ff"),
        (b"\xff" * 50, "0x" + "ff" * 13 + "..."),
    ],
)
def test_the_first_bytes_fit_a_line(data: bytes, shown: str) -> None:
    assert preview(data) == shown


def test_json_holds_all_of_it() -> None:
    assert as_json(make_letter("ü".encode()))["data"] == "ü"
    binary = as_json(make_letter(b"\xff\x00"))
    assert (binary["encoding"], binary["data"]) == ("base64", "/wA=")
    assert binary["headers"] == {"ce-id": "u1/ready/1"}


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-5, "0s"), (59, "59s"), (61, "1m"), (7300, "2h"), (200_000, "2d")]
)
def test_an_age_has_one_unit(seconds: int, shown: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (2048, "2.0 KiB"), (3 << 30, "3.0 GiB"), (1 << 50, "1048576.0 GiB")],
)
def test_an_amount_has_a_unit(size: int, shown: str) -> None:
    assert amount(size) == shown
