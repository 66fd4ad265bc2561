"""The history of facts: the last message of a subject, and whether a stream is whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.contract.bus.suite import Probe, make_gated

from paddlewheel.bus.ports import RawMessage
from paddlewheel.bus.streams import JOBS
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.wait import eventually


async def test_the_last_message_of_a_subject_is_found_with_its_headers(probe: Probe) -> None:
    for number in range(3):
        await probe.bus.publish(make_gated(number))
    await probe.bus.publish(make_gated(9, uid="uid-2"))
    last = await probe.bus.history.last(make_gated(0).subject)
    assert isinstance(last, RawMessage)
    assert last.headers["ce-id"] == make_gated(2).id
    assert (last.subject, b'"message":"2"' in last.data) == (make_gated(0).subject, True)


async def test_a_subject_that_holds_nothing_has_no_last_message(probe: Probe) -> None:
    assert await probe.bus.history.last(make_gated(0).subject) is None


async def test_a_subject_of_no_stream_is_refused(probe: Probe) -> None:
    with pytest.raises(Permanent, match="no stream"):
        await probe.bus.history.last("pw.elsewhere.a")


async def test_a_stream_is_whole_from_its_creation_until_it_drops_a_message(probe: Probe) -> None:
    made = await probe.bus.history.whole_since(JOBS.name)
    assert made is not None
    assert abs(datetime.now(UTC) - made) < timedelta(minutes=1)
    await probe.bus.publish(make_gated(1))
    assert await probe.bus.history.whole_since(JOBS.name) == made
    await probe.drop_first()
    assert await probe.bus.history.whole_since(JOBS.name) is None


async def test_a_recreated_stream_has_a_new_creation_time(probe: Probe) -> None:
    await probe.bus.publish(make_gated(1))
    made, epoch = await probe.bus.history.whole_since(JOBS.name), probe.bus.history.epoch
    assert made is not None
    probe.lose_facts()
    await eventually(lambda: probe.bus.history.epoch != epoch)

    async def is_another() -> bool:
        try:
            again = await probe.bus.history.whole_since(JOBS.name)
        except Retry:
            return False
        return again is not None and again > made

    await eventually(is_another)
    assert await probe.bus.history.last(make_gated(1).subject) is None
