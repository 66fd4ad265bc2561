"""Time stamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlewheel.contracts.stamps import age, human_duration, milliseconds_stamp, parse_stamp, seconds_stamp

NOON = datetime(2026, 1, 31, 12, 0, 0, 250_999, tzinfo=UTC)


def test_fractions_are_cut_off() -> None:
    assert seconds_stamp(NOON) == "2026-01-31T12:00:00Z"
    assert milliseconds_stamp(NOON) == "2026-01-31T12:00:00.250Z"


def test_other_zones_become_utc() -> None:
    cet = NOON.astimezone(timezone(timedelta(hours=1)))
    assert seconds_stamp(cet) == "2026-01-31T12:00:00Z"
    assert milliseconds_stamp(cet) == "2026-01-31T12:00:00.250Z"


def test_a_year_has_four_digits() -> None:
    assert seconds_stamp(datetime(999, 1, 1, tzinfo=UTC)) == "0999-01-01T00:00:00Z"


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        seconds_stamp(datetime(2026, 1, 31, 12))  # noqa: DTZ001


@given(st.floats(0, 4e9), st.integers(-12, 14))
def test_parsing_a_stamp_gives_the_time(seconds: float, hours: int) -> None:
    time = datetime.fromtimestamp(seconds, timezone(timedelta(hours=hours)))
    parsed = parse_stamp(milliseconds_stamp(time))
    assert parsed is not None
    assert timedelta() <= time - parsed < timedelta(milliseconds=1)


def test_a_stamp_without_zone_is_utc() -> None:
    assert parse_stamp("2026-01-31T12:00:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", None, "yesterday", "2026-13-01T00:00:00Z"])
def test_no_time(text: str | None) -> None:
    assert parse_stamp(text) is None
    assert age(text, NOON) == 0.0


def test_age() -> None:
    assert age("2026-01-31T11:59:00Z", NOON.replace(microsecond=0)) == 60.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.9, "0s"),
        (-3, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (200, "3m20s"),
        (3600, "1h"),
        (3601, "1h"),
        (7500, "2h5m"),
        (86_400, "1d"),
        (86_460, "1d"),
        (273_660, "3d4h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text
