"""The storage of the chart's NATS server takes all declared streams and the copies of subscribers."""

from __future__ import annotations

import pytest

from paddlewheel.bus.admin.permissions import FACTS
from paddlewheel.bus.streams import STREAMS
from paddlewheel.testkit.charts import CHARTS, helm

MIB = 1024**2
WHOLE = sum(stream.max_bytes for stream in STREAMS) // MIB
COPY = sum(stream.max_bytes for stream in FACTS) // MIB


def rendered(*values: str) -> str:
    """What Helm complains about, "" when it renders."""
    flags = [part for value in ("crds.install=false", *values) for part in ("--set", value)]
    return helm("template", "release", str(CHARTS / "paddlewheel"), "--namespace", "p", *flags).stderr


def store(mib: int) -> str:
    return f"nats.jetstream.maxFileStore={mib}Mi"


def teams(number: int) -> list[str]:
    return [f"nats.subscribers[{i}].name=team-{i}" for i in range(number)]


def test_declared_streams_fit() -> None:
    assert rendered() == ""


@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_store_that_is_too_small_for_streams_and_copies_is_refused(number: int) -> None:
    needed = WHOLE + number * COPY
    refused = rendered(store(needed - 1), *teams(number))
    assert f"set nats.jetstream.maxFileStore={needed}Mi" in refused
    assert f"for {number} nats.subscribers" in refused
    assert rendered(store(needed), *teams(number)) == ""


def test_streams_that_keep_more_count_with_their_copies() -> None:
    more = 1024 - 256
    needed = WHOLE + COPY + 2 * more
    assert f"({needed}Mi)" in rendered(store(needed - 1), "nats.streams.PW_JOBS.maxBytes=1Gi")
    assert rendered(store(needed), "nats.streams.PW_JOBS.maxBytes=1Gi") == ""
    assert rendered(store(WHOLE + COPY), "nats.streams.PW_JOBS.maxAge=30d") == ""


def test_five_servers_share_three_replicas() -> None:
    least = -(-(WHOLE + COPY) * 3 // 5)
    assert rendered(store(least), "nats.replicas=5") == ""
    assert rendered(store(least - 1), "nats.replicas=5")


def test_without_permissions_nothing_is_copied() -> None:
    assert rendered(store(WHOLE), "nats.tls.enabled=false") == ""
    assert rendered(store(WHOLE - 1), "nats.tls.enabled=false")


def test_a_server_of_ones_own_is_not_judged() -> None:
    own = ("nats.enabled=false", "nats.url=nats://example:4222", store(1))
    assert rendered(*own) == ""
