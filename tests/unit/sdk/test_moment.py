"""When a subscription begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from paddlewheel.sdk import InvalidArgument
from paddlewheel.sdk.moment import BEGINNING, moment

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EAST = timezone(timedelta(hours=8))


@pytest.mark.parametrize(
    ("since", "meant"),
    [
        ("30s", NOW - timedelta(seconds=30)),
        ("10m", NOW - timedelta(minutes=10)),
        ("2h", NOW - timedelta(hours=2)),
        ("1d", NOW - timedelta(days=1)),
        ("1d12h", NOW - timedelta(hours=36)),
        ("999999999d", BEGINNING),
        ("999999999d999999999h", BEGINNING),
        ("all", BEGINNING),
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        (timedelta(seconds=5), NOW - timedelta(seconds=5)),
        (datetime(2026, 1, 1, 8, tzinfo=EAST), datetime(2026, 1, 1, tzinfo=UTC)),
        (datetime(1900, 1, 1, tzinfo=UTC), BEGINNING),
    ],
)
def test_it_lies_where_asked(since: str | timedelta | datetime, meant: datetime) -> None:
    assert moment(since, NOW) == meant


@pytest.mark.parametrize("since", [None, ""])
def test_nothing_means_from_now_on(since: str | None) -> None:
    assert moment(since, NOW) is None


@pytest.mark.parametrize(
    "since",
    [
        "10", "x", "1w", "-5m", "2026-01-01", "2030-01-01T00:00:00Z",
        NOW.replace(tzinfo=None), timedelta(seconds=-1), 10,
    ],
)  # fmt: skip
def test_what_is_no_moment_is_refused_with_examples(since: str) -> None:
    with pytest.raises(InvalidArgument, match=r'since: .*"30s", "10m"'):
        moment(since, NOW)
