"""What the demo says about a service that does not become ready."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import orjson
import pytest

from paddlewheel.cli.demo import serving
from paddlewheel.cli.demo.facts import Facts
from paddlewheel.cli.demo.model import Run
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.serving_v1 import ServiceReady
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.memory_bus import MemoryBus

UID = "uid-digits"
NOW = datetime.now(UTC)
IMAGE = {"reason": "ImagePullBackOff", "message": 'cannot pull image "absent:1": not found'}


class Tools:
    """kubectl, for a service with this status."""

    def __init__(self, status: dict[str, str]) -> None:
        self._object = {"metadata": {"uid": UID}, "status": status}

    async def run(self, *_: str) -> str:
        return orjson.dumps(self._object).decode()


def make_run(facts: Facts, status: dict[str, str]) -> Any:
    return cast(Run, type("Run", (), {"tools": Tools(status), "facts": facts}))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (IMAGE, "ImagePullBackOff: cannot pull image"),
        ({}, "empty: serving-controller has not processed the service"),
    ],
)
async def test_what_keeps_the_service_from_its_first_start_is_told(
    facts: Facts, monkeypatch: pytest.MonkeyPatch, status: dict[str, str], words: str
) -> None:
    monkeypatch.setattr(serving, "_READY_TIMEOUT_SECONDS", 0.01)
    with pytest.raises(Permanent, match=f"no ServiceReady within 0 s; the status of the service is {words}"):
        await serving.await_ready(make_run(facts, status), UID)


async def test_a_service_that_becomes_ready_is_waited_for(bus: MemoryBus, facts: Facts) -> None:
    ref = ObjectRef(namespace="paddle-demo", name="digits", uid=UID)
    ready = ServiceReady(service=ref, revision="digits-1")
    await bus.publish(
        make_event(ready, id="1", source="test", namespace="paddle-demo", uid=ref.uid, time=NOW)
    )
    await serving.await_ready(make_run(facts, {}), UID)
