"""Times of stored messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from nats.aio.msg import Msg

from paddlewheel.bus.nats.consume import stored_at

SECOND = int(datetime(2026, 11, 28, tzinfo=UTC).timestamp()) * 10**9


@pytest.mark.parametrize("prefix", ["$JS.ACK", "$JS.ACK.domain.account"])
@pytest.mark.parametrize("nanoseconds", [0, 1, 499, 500, 999, 1000, 123_456_999, 999_999_999])
def test_a_time_is_rounded_down(prefix: str, nanoseconds: int) -> None:
    suffix = ".token" if "domain" in prefix else ""
    reply = f"{prefix}.PW_JOBS.durable.1.7.8.{SECOND + nanoseconds}.0{suffix}"
    msg = Msg(cast(Any, None), subject="pw.evt.x", reply=reply)
    assert msg.metadata.sequence.stream == 7
    whole = datetime(2026, 11, 28, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    assert stored_at(msg) == whole
