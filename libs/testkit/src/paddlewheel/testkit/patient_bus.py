"""A client that publishes as services do: until it is stored."""

from __future__ import annotations

from typing_extensions import override

from paddlewheel.bus.access import Access
from paddlewheel.bus.nats import NatsBus
from paddlewheel.contracts.envelope import Event
from paddlewheel.testkit.wait import patiently


class PatientBus(NatsBus):
    """A bus for tests of readers.

    It publishes again after a failure; the stream stores a fact once, by its id.
    """

    @override
    async def publish(self, event: Event) -> None:
        await patiently(lambda: super(PatientBus, self).publish(event))


async def connect(access: Access | str, *, name: str) -> PatientBus:
    """Raises nothing, as `paddlewheel.bus.connect`."""
    bus = PatientBus(access, name=name)
    await bus.start()
    return bus
