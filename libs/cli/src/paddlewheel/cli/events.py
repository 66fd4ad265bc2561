"""`paddlewheel events`: the facts on the bus, as they come."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from paddlewheel.bus import connect
from paddlewheel.bus.ports import Delivery
from paddlewheel.cli.portforward import port_forward
from paddlewheel.cli.target import Target, target
from paddlewheel.contracts.wire import to_json

SYSTEM_NAMESPACE = "paddle-system"


def events(
    name: Annotated[str, typer.Option(help="Embedded cluster; ignored when KUBECONFIG is set.")] = "demo",
    since: Annotated[
        str, typer.Option(help="How far back to begin: 30s, 10m, 2h; empty = from now on.")
    ] = "1h",
    context: Annotated[str, typer.Option(help="jobs, datasets, cache or * for all.")] = "*",
    output: Annotated[str, typer.Option("--output", "-o", help="text or json (one object a line).")] = "text",
) -> None:
    """Follow the facts that the services publish, oldest first; Ctrl-C ends it.

    With NATS_URL set, that server is asked; otherwise the cluster's own through kubectl port-forward.
    """
    try:
        asyncio.run(_follow(target(name), moment(since, datetime.now(UTC)), context, output))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def describe(delivery: Delivery) -> str:
    """One line for a person: time, fact, object, and what else the fact says."""
    event = delivery.event
    data = orjson.loads(to_json(event.data))
    fact = ".".join(event.subject.split(".")[2:5])
    said = " ".join(f"{name}={_short(value)}" for name, value in data.items() if name not in _NAMES_OBJECT)
    return f"{event.time:%H:%M:%S} {fact:<28} {_object(data)} {said}".rstrip()


_REFERENCES = ("job", "sampleSet", "sampleJob")
_NAMES_OBJECT = {*_REFERENCES, "setNamespace", "setName", "setUid"}


def _object(data: Mapping[str, Any]) -> str:
    reference = next((data[name] for name in _REFERENCES if isinstance(data.get(name), dict)), None)
    if reference is None:
        return f"{data.get('setNamespace', '')}/{data.get('setName', '')}"
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}"


def _short(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


async def _follow(where: Target, since: datetime | None, context: str, output: str) -> None:
    if url := os.environ.get("NATS_URL"):
        await _print_all(url, since, context, output)
        return
    async with port_forward(where.tools, SYSTEM_NAMESPACE, "svc/nats", 4222) as port:
        await _print_all(f"nats://127.0.0.1:{port}", since, context, output)


async def _print_all(url: str, since: datetime | None, context: str, output: str) -> None:
    console = Console(soft_wrap=True, highlight=False)
    bus = await connect(url, name="paddlewheel-events")
    try:
        async for delivery in bus.tail((f"pw.evt.{context}.>",), since=since):
            if output == "json":
                sys.stdout.write(as_json(delivery) + "\n")
                sys.stdout.flush()
            else:
                console.print(describe(delivery))
    finally:
        await bus.close()


def as_json(delivery: Delivery) -> str:
    """The event as one line of CloudEvents JSON (structured mode)."""
    event = delivery.event
    return orjson.dumps(
        {
            "specversion": "1.0", "id": event.id, "type": event.type, "source": event.source,
            "subject": event.subject, "time": event.time.isoformat(),
            "data": orjson.loads(to_json(event.data)),
        }
    ).decode()  # fmt: skip


def moment(since: str, now: datetime) -> datetime | None:
    """The time that lies `since` before `now`; None for an empty text."""
    if not since:
        return None
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if since[-1] not in units or not since[:-1].isdigit():
        raise typer.BadParameter(f"{since!r} is no duration; write 30s, 10m, 2h or 1d", param_hint="--since")
    return now - timedelta(seconds=int(since[:-1]) * units[since[-1]])
