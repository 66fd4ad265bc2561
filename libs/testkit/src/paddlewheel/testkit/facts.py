"""Facts for tests in which the content of the message does not matter."""

from __future__ import annotations

from datetime import UTC, datetime

from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.jobs_v1 import JobGated


def make_gated(number: int, uid: str = "uid", namespace: str = "default") -> Event:
    """The `number`-th fact about the job `uid`. Its `message` contains the number."""
    return make_event(
        JobGated(message=str(number)),
        id=f"{uid}/gated/{number}",
        source="test",
        namespace=namespace,
        uid=uid,
        time=datetime.now(UTC),
    )
