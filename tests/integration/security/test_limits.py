"""The server keeps as many consumers of work as the installer makes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from paddlewheel.bus.nats import work_requests
from paddlewheel.bus.streams import WORK
from paddlewheel.testkit.chart_bus import PATIENCE, ChartBus, Guest, guest, install
from paddlewheel.testkit.charts import named, services

BUILT_IN = 1000
"""Consumers that a stream may have when the server's configuration does not say."""


async def make_consumers(operator: Guest, numbers: range) -> list[str]:
    """What the server complained about."""

    async def make(number: int) -> str:
        name = f"cache=s=r={number}=v1"
        config: dict[str, Any] = {"durable_name": name, "filter_subject": f"pw.work.cache.s.r.{number}.v1"}
        # In memory: a server takes long to end when it has to write the states of so many to a slow disk.
        config |= {"ack_policy": "explicit", "mem_storage": True}
        body = {"stream_name": WORK.name, "config": config, "action": "create"}
        subject = f"$JS.API.CONSUMER.CREATE.{WORK.name}.{name}"
        answer = await operator.client.request(subject, json.dumps(body).encode(), timeout=6 * PATIENCE)
        return str(json.loads(answer.data).get("error", ""))

    return [error for error in await asyncio.gather(*map(make, numbers)) if error]


async def test_work_has_more_consumers_than_the_servers_default(empty_bus: ChartBus) -> None:
    await install(empty_bus)
    async with guest(empty_bus, "operator") as operator:
        for start in range(0, BUILT_IN, 100):
            assert await make_consumers(operator, range(start, start + 100)) == []
        assert await make_consumers(operator, range(BUILT_IN, BUILT_IN + 1)) == []


def test_the_server_takes_all_that_the_installer_makes() -> None:
    config = str(named(services(), "ConfigMap", "nats")["data"]["nats.conf"])
    limit = int(config.partition("default_max_consumers:")[2].split()[0])
    assert limit > work_requests.IN_ALL + work_requests.TURNS.all_at_work
