"""Every service beside another release, over the memory bus: messages with fewer fields, with more, unknown.

What the last release writes comes from its own contracts (`protos/released`), not from ours. The other
direction, an older process that reads what this release writes, is `integration/bus/test_two_releases.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest
from tests.unit.dataset_controller.conftest import DataHarness
from tests.unit.job_controller.conftest import JobHarness
from tests.unit.serving_controller.conftest import ServingHarness
from tests.unit.trigger_controller.conftest import TriggerHarness

from paddlewheel.bus.ports import RawMessage, Reading
from paddlewheel.contracts import wire
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.events import EVENTS
from paddlewheel.contracts.subjects import event_subject
from paddlewheel.core.tasks import end
from paddlewheel.testkit import released
from paddlewheel.testkit.harness import Harness
from paddlewheel.testkit.memory_bus import MemoryBus
from paddlewheel.testkit.operators import OperatorReplica

SERVICES: dict[str, Callable[[], Harness[OperatorReplica]]] = {
    "job-controller-memory": JobHarness,
    "dataset-controller-memory": DataHarness,
    "serving-controller-memory": ServingHarness,
    "trigger-controller-memory": TriggerHarness,
}
DURABLES = {
    "trigger-controller-memory": [
        "trigger-controller-datasets",
        "trigger-controller-jobs",
        "trigger-controller-sources",
    ],
}
"""The others read without one."""
BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
MORE = {"ofANewerRelease": {"name": "red", "parts": [1, 2]}}
FACTS = sorted(name for name in released.messages() if name in EVENTS)


def model_of(type_: str) -> type[WireModel] | None:
    """The model of this release, by its proto name; None for what has another name now."""
    package, _, name = type_.removeprefix("paddlewheel.").rpartition(".")
    module = import_module(f"paddlewheel.contracts.generated.{package.replace('.', '_')}")
    return getattr(module, name, None)


OTHERS = sorted(
    name
    for name, type_ in released.messages().items()
    if name not in EVENTS and not type_.get("options", {}).get("mapEntry")
)
RECORDS = [name for name in OTHERS if model_of(name)]
MOVED = [name for name in OTHERS if not model_of(name)]
"""Facts of the last release that no contract of this one has; `buf breaking` lets them be few."""


def message(type_: str, body: dict[str, Any], number: int, subject: str = "") -> RawMessage:
    headers = {
        "ce-specversion": "1.0",
        "ce-id": f"id-{number}",
        "ce-type": type_,
        "ce-source": "other-release",
        "ce-time": released.TIME,
        wire.MESSAGE_ID: f"id-{number}",
    }
    return RawMessage(
        subject or event_subject(type_, "default", f"uid-{number}"), json.dumps(body).encode(), headers
    )


def of_other_releases() -> Iterator[RawMessage]:
    """Of each fact of the last release one with all of its fields, one with none, one with more, those that
    are gone too; and of each context a fact that is not there yet."""
    assert FACTS
    bodies = [body for type_ in (*FACTS, *MOVED) for body in _bodies(type_)]
    for number, (type_, body) in enumerate(bodies):
        yield message(type_, body, number)
    for number, type_ in enumerate(FACTS):
        newer = f"{type_}Anew"
        subject = event_subject(type_, "default", f"newer-{number}").split(".")
        subject[4] += "anew"
        yield message(newer, {**released.full_body(type_), **MORE}, 10_000 + number, ".".join(subject))


def _bodies(type_: str) -> list[tuple[str, dict[str, Any]]]:
    full = released.full_body(type_)
    return [(type_, full), (type_, {}), (type_, {**full, **MORE})]


@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_parks_nothing_of_another_release(service: str) -> None:
    harness = SERVICES[service]()
    for raw in of_other_releases():
        await harness.bus.publish_raw(raw)
    async with harness.running():
        await harness.drain_queue()
        for _ in range(30):
            await harness.advance(1)
        assert harness.bus.stored("PW_DLQ") == []
        durables = (await harness.bus.inspect.status()).durables
        assert sorted(d.name for d in durables if not d.name.endswith("-again")) == DURABLES.get(service, [])
        assert [(d.name, d.pending, d.ack_pending) for d in durables if d.pending or d.ack_pending] == []


async def test_a_subscriber_on_the_memory_bus_reads_all_that_it_knows() -> None:
    """`bus.read`, on which the SDK's subscriptions stand."""
    bus, ids = MemoryBus(), set[str]()
    sent = list(of_other_releases())
    for raw in sent:
        await bus.publish_raw(raw)

    async def read() -> None:
        async for delivery in bus.read(Reading(("pw.evt.>", "pw.src.>"), since=BEGINNING)):
            ids.add(delivery.event.id)

    reading = asyncio.create_task(read())
    known = {raw.headers["ce-id"] for raw in sent if raw.headers["ce-type"] in EVENTS}
    for _ in range(1000):
        await asyncio.sleep(0)
    await end(reading)
    assert ids == known


@pytest.mark.parametrize("type_", [pytest.param(name, id=f"{name}-parity") for name in (*FACTS, *RECORDS)])
def test_what_the_last_release_wrote_is_read(type_: str) -> None:
    """Facts, and the records by which dataset-controller and cache-runtime work together."""
    model = model_of(type_)
    assert model
    for body in (released.full_body(type_), {}, {**released.full_body(type_), **MORE}):
        read = wire.from_json(model, json.dumps(body).encode())
        written = json.loads(wire.to_json(read))
        assert written == {name: value for name, value in body.items() if name not in MORE}
