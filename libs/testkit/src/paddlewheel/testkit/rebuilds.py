"""The command `rebuild`, as an operator gives it."""

from __future__ import annotations

from paddlewheel.bus.ports import Commands
from paddlewheel.contracts.generated.bus_v1 import Rebuild, RebuildReport
from paddlewheel.contracts.subjects import command_subject
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import Retry
from paddlewheel.testkit.wait import eventually


async def rebuild(bus: Commands, service: str, *, replicas: int, within: float) -> list[RebuildReport]:
    """The reports of all replicas, by name; asked for up to `within` seconds until all are there."""
    command = command_subject(service, "rebuild")

    async def asked() -> list[RebuildReport]:
        try:
            answers = await bus.ask_all(command, to_json(Rebuild()), within=1.0)
        except Retry:
            return []
        return [from_json(RebuildReport, a) for a in answers] if len(answers) == replicas else []

    return sorted(await eventually(asked, within=within), key=lambda r: r.replica)
