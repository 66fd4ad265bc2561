"""The verdicts about a bus that may lose acknowledged messages, and about one that may not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.durability import ServerFacts, StreamFacts, find_loaded, judge_durability
from paddlewheel.bus.streams import Drift

NO_DRIFT = Drift({}, {})
MONITOR = "http://nats:8222"
SAFE = Access("nats://bus", replicas=3, profile="production", monitor_url=MONITOR)
SYNCED = ServerFacts(MONITOR, sync_always=True)


def make_streams(replicas: int = 3, drift: Drift = NO_DRIFT) -> Mapping[str, StreamFacts]:
    return {"PW_JOBS": StreamFacts(replicas, drift)}


def test_three_replicas_that_sync_always_are_safe() -> None:
    assert judge_durability(SAFE, make_streams(), [SYNCED]).warnings == ()


FAULTS = [
    (
        Access("nats://bus", monitor_url=MONITOR),
        make_streams(),
        SYNCED,
        ("nats_replicas=1", "set nats_replicas=3"),
    ),
    (SAFE, make_streams(replicas=1), SYNCED, ("PW_JOBS: fewer replicas", "join as many servers")),
    (
        SAFE,
        make_streams(drift=Drift({}, {"storage": ("file", "memory")})),
        SYNCED,
        ("PW_JOBS: storage is memory, declared file", "delete the stream", "bus-installer makes it again"),
    ),
    (
        SAFE,
        make_streams(),
        ServerFacts(MONITOR, sync_always=False, sync_interval=120.0),
        (MONITOR, "every 120 s", "set jetstream.sync_interval to always"),
    ),
]


@pytest.mark.parametrize(("access", "streams", "server", "words"), FAULTS)
def test_each_fault_names_what_to_do(
    access: Access, streams: Mapping[str, StreamFacts], server: ServerFacts, words: tuple[str, ...]
) -> None:
    [fault] = judge_durability(access, streams, [server]).faults
    assert [word for word in words if word not in fault] == []


def test_corrected_drift_is_no_fault() -> None:
    drift = Drift({"max_age": (1.0, 2.0)}, {})
    assert judge_durability(SAFE, make_streams(drift=drift), [SYNCED]).warnings == ()


def test_a_server_without_a_reachable_monitor_is_a_doubt() -> None:
    unasked = Access("nats://bus", replicas=3)
    [doubt] = judge_durability(unasked, make_streams(), []).doubts
    assert "nats_monitor_url is not set" in doubt
    silent = judge_durability(SAFE, make_streams(), [SYNCED, ServerFacts("http://other:8222", None)])
    assert silent.faults == ()
    assert "http://other:8222: no answer" in silent.doubts[0]


def test_a_server_that_no_longer_answers_has_not_loaded_its_configuration() -> None:
    first = [ServerFacts("a", True, config_loaded=True), ServerFacts("b", False, config_loaded=False)]
    foreign = ServerFacts("own", True)
    loaded = find_loaded({}, [*first, foreign])
    assert loaded == {"a": True, "b": False}
    assert find_loaded(loaded, [ServerFacts("a", None), foreign]) == {"a": False}, "b was scaled away"
