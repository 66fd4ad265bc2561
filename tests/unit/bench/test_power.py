"""What the cuts of power rest on: the log of a disk, the archive that is booted, the draws and the judge."""

from __future__ import annotations

import io
import random
import struct

import pytest
from tests.chaos.disk import flushed
from tests.chaos.initramfs import pack
from tests.chaos.power import FACTS, MOMENT, SCENARIOS, Findings, Scenario, draw_cuts, rows_of
from tests.chaos.publishers import Log
from tests.chaos.stored import Stored

from paddlewheel.bus.streams import DATASETS, JOBS

SECTOR = 512
WRITE, FLUSH, DISCARD = 0, 1, 4
SYNCED, LOSING = (Scenario("x", (), servers=1, at_once=1, cuts=1, loses=loses) for loses in (False, True))


def make_log(*entries: tuple[int, int, bytes], counted: int | None = None) -> io.BytesIO:
    """As QEMU's driver `blklogwrites` writes it: (flags, sector, content)."""
    count = len(entries) if counted is None else counted
    parts = [struct.pack("<QQQL", 0x6A736677736872, 1, count, SECTOR).ljust(SECTOR, b"\0")]
    for flags, sector, content in entries:
        parts.append(struct.pack("<QQQQ", sector, len(content) // SECTOR, flags, 0).ljust(SECTOR, b"\0"))
        parts.append(content)
    return io.BytesIO(b"".join(parts))


def filled(letter: bytes) -> bytes:
    return letter * SECTOR


def stored(*ids: str) -> list[Stored]:
    return [Stored(number, "subject", each, b"", {}) for number, each in enumerate(ids, 1)]


def fact(number: int) -> str:
    return f"uid-{number}/JobGated/0"


def test_a_disk_keeps_what_was_written_before_its_last_flush() -> None:
    log = make_log(
        (WRITE, 8, filled(b"a")),
        (FLUSH, 0, b""),
        (WRITE, 9, filled(b"b") + filled(b"c")),
        (WRITE, 8, filled(b"d")),
        (FLUSH, 0, b""),
        (WRITE, 8, filled(b"e")),
    )
    assert list(flushed(log)) == [
        (8 * SECTOR, filled(b"a")),
        (9 * SECTOR, filled(b"b") + filled(b"c")),
        (8 * SECTOR, filled(b"d")),
    ]


def test_a_disk_that_was_never_flushed_keeps_nothing() -> None:
    assert list(flushed(make_log((WRITE, 8, filled(b"a"))))) == []
    assert list(flushed(io.BytesIO())) == []


def test_entries_that_no_flush_has_counted_are_not_read() -> None:
    log = make_log((WRITE, 8, filled(b"a")), (FLUSH, 0, b""), (FLUSH, 0, b""), counted=1)
    assert list(flushed(log)) == []


def test_a_discarded_range_has_no_content_in_the_log() -> None:
    log = make_log((DISCARD, 8, b""), (WRITE, 9, filled(b"a")), (FLUSH, 0, b""))
    assert list(flushed(log)) == [(9 * SECTOR, filled(b"a"))]


def test_a_file_that_is_no_log_is_refused() -> None:
    with pytest.raises(AssertionError, match="no log of writes"):
        list(flushed(io.BytesIO(bytes(SECTOR))))


def test_an_archive_has_folders_before_their_files_and_an_end() -> None:
    packed = pack({"etc/nats/nats.conf": b"port: 4222", "init": b"#!"})
    found, offset = [], 0
    while offset < len(packed):
        magic, fields = packed[offset : offset + 6], packed[offset + 6 : offset + 110]
        _, mode, *_, size, _, _, _, _, length, _ = (
            int(fields[at : at + 8], 16) for at in range(0, len(fields), 8)
        )
        name = packed[offset + 110 : offset + 110 + length]
        begins = (offset + 110 + length + 3) // 4 * 4
        assert (magic, name[-1:]) == (b"070701", b"\0")
        found.append((name[:-1].decode(), oct(mode), packed[begins : begins + size]))
        offset = (begins + size + 3) // 4 * 4
    assert found == [
        ("etc", "0o40755", b""),
        ("etc/nats", "0o40755", b""),
        ("etc/nats/nats.conf", "0o100755", b"port: 4222"),
        ("init", "0o100755", b"#!"),
        ("TRAILER!!!", "0o0", b""),
    ]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_same_seed_cuts_the_same_servers_at_the_same_moments(scenario: Scenario) -> None:
    first, again = (draw_cuts(random.Random("7"), scenario) for _ in range(2))
    assert first == again
    assert len(first) == scenario.cuts
    for cut in first:
        assert FACTS[0] <= cut.facts <= FACTS[1]
        assert 0.0 <= cut.seconds <= MOMENT
        assert len(set(cut.servers)) == scenario.at_once
        assert set(cut.servers) <= set(range(scenario.servers))


def test_facts_are_lost_and_stored_twice_and_what_was_found_once_remains_found() -> None:
    findings = Findings()
    findings.judge([fact(1), fact(2)], stored(fact(1), fact(3), fact(3)), set())
    findings.judge([fact(1), fact(2)], stored(fact(1), fact(2), fact(3)), set())
    assert (findings.lost, findings.doubled, findings.damaged) == ({fact(2)}, {fact(3)}, set())


def test_a_stream_that_is_silent_or_has_gaps_is_damaged() -> None:
    findings = Findings()
    findings.judge([], [], {DATASETS.name})
    findings.judge([fact(1)], [Stored(2, "subject", fact(1), b"", {})], set())
    assert findings.damaged == {DATASETS.name, JOBS.name}


@pytest.mark.parametrize(("scenario", "lost", "verdict"), [
    (SYNCED, 0, "ok"), (SYNCED, 1, "short"), (LOSING, 0, "short"), (LOSING, 1, "ok"),
])  # fmt: skip
def test_a_check_that_cannot_lose_anything_is_short(scenario: Scenario, lost: int, verdict: str) -> None:
    findings = Findings(lost={fact(number) for number in range(lost)})
    rows = {row.name: row.verdict for row in rows_of(scenario, Log(), findings)}
    assert rows["chaos.power.x.acknowledged_lost"] == verdict
