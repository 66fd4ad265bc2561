"""A server with the chart's accounts and with bus-auth's reader and writer. Passwords replace its grants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.accounts import HOME, READER, server_accounts
from paddlewheel.bus.admin.permissions import AGENT, OPERATOR, Permissions, permissions_of, role_named
from paddlewheel.bus.admin.rights import SetReference, agent_inbox, within_set
from paddlewheel.bus.admin.set_quotas import QUOTAS
from paddlewheel.bus.nats.set_reader import SetReader
from paddlewheel.bus.nats.set_requests import SetRequests
from paddlewheel.bus.nats.set_writer import SetWriter
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.tasks import end
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.wait import eventually


def configuration(owner: SetReference) -> dict[str, Any]:
    """The chart's accounts, with passwords in place of the rights that bus-auth grants to agents of a set."""
    accounts = {name: {**account, "users": []} for name, account in server_accounts().items()}
    may = {
        AGENT: within_set(permissions_of(role_named(AGENT)), owner),
        # This account also answers requests to the installer.
        HOME: permissions_of(role_named(OPERATOR)) | Permissions(answers=True),
    }
    for name in (AGENT, HOME, READER):
        user: dict[str, Any] = {"user": name, "password": "x"}
        accounts[name]["users"] = [user]
        if name in may:
            user["permissions"] = may[name].as_config()
    return {"accounts": accounts, "system_account": "SYS"}


def access(server: NatsServer, name: str, **changes: Any) -> Access:
    """How an account connects."""
    url = server.url.replace("nats://", f"nats://{name}:x@")
    return Access(url, **{"streams": "assume", "reads": "directly", **changes})


def agents_access(server: NatsServer, owner: SetReference) -> Access:
    """How the agents of a set connect."""
    own = access(server, AGENT, inbox_prefix=agent_inbox(owner.uid))
    return own.through_bus_auth(owner.uid)


@asynccontextmanager
async def reading(server: NatsServer) -> AsyncIterator[None]:
    """A replica of bus-auth's reader."""
    async with serving(SetReader(access(server, READER), SystemClock(), lambda _: None, name="reader")):
        yield


@asynccontextmanager
async def writing(server: NatsServer, quotas: Mapping[str, int] = QUOTAS) -> AsyncIterator[None]:
    """A replica of bus-auth's writer."""
    name, clock = "writer", SystemClock()
    async with serving(SetWriter(access(server, READER), clock, lambda _: None, name=name, quotas=quotas)):
        yield


@asynccontextmanager
async def serving(requests: SetRequests) -> AsyncIterator[None]:
    """Answer requests while the block runs."""
    task = asyncio.create_task(requests.run())

    async def is_ready() -> bool:
        return await requests.is_ready() is True

    try:
        await eventually(is_ready)
        yield
    finally:
        await end(task)
