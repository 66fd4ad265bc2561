"""bus-auth of the release before lets in who needs rights of this one: a real server; replicas agree.

The older one grants less than the role needs now, for half an hour.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import Permissions
from paddlewheel.bus.admin.rights import Identity, rights
from paddlewheel.bus.callout.claims import Grant, Login
from paddlewheel.bus.nats import renewal
from paddlewheel.bus.nats.client import NOT_PERMITTED
from paddlewheel.bus.nats.connection import Connection
from paddlewheel.core.errors import Retry, Unavailable
from paddlewheel.testkit.bus_auth import letting_in
from paddlewheel.testkit.chart_bus import BUS_CA, ChartBus, running
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

ROLE, LIFETIME = "operator", 1800
NEEDED = "pw.evt.somebody.asks"
"""To publish on, and to hear."""

Narrow = Callable[[Permissions], Permissions]


def in_full(may: Permissions) -> Permissions:
    """As this release grants them."""
    return may


def in_part(may: Permissions) -> Permissions:
    """As a release grants them that does not know `NEEDED`."""
    inboxes = frozenset(subject for subject in may.subscribe if subject.startswith("_INBOX"))
    return replace(may, publish=frozenset({"$JS.API.INFO"}), subscribe=inboxes)


@dataclass
class Scene:
    """A server, and one client of it.

    Args:
        granted: how often each kind of rights was.
    """

    bus: ChartBus
    access: Access
    granted: list[Narrow] = field(default_factory=list)

    @asynccontextmanager
    async def replica(self, narrow: Narrow) -> AsyncIterator[None]:
        """One bus-auth is there."""

        async def authorize(asking: Login) -> Grant:
            account, may = rights(Identity(asking.role))
            self.granted.append(narrow)
            return Grant("somebody", account, narrow(may), int(time.time()) + LIFETIME)

        async with letting_in(self.bus, authorize):
            yield

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Of the client."""
        connection = Connection(self.access, "client")
        try:
            yield connection
        finally:
            await connection.close()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(renewal, "FIRST_INTERVAL_SECONDS", 1.0)
    (tmp_path / "token").write_text("anything")
    with running(tmp_path / "bus", passwords=False) as bus:
        files = {"tls_dir": str(bus.folder / BUS_CA), "token_file": str(tmp_path / "token")}
        yield Scene(bus, bus.access(ROLE, **files))


async def may_publish(connection: Connection) -> bool:
    try:
        await (await connection.client()).ask(NEEDED, b"", 5)
    except Retry as error:
        if error.reason != NOT_PERMITTED:
            raise
        return False
    return True


async def may_hear(connection: Connection) -> bool:
    """As a feed does, which begins anew when its connection is lost."""
    try:
        client = await connection.client()
        async with connection.calling("subscribe"):
            await client.subscribe(NEEDED)
            await client.flush()
    except Unavailable:
        return False
    return NEEDED not in client.forbidden


@pytest.mark.parametrize("may", [may_publish, may_hear])
async def test_who_was_let_in_by_the_older_release_has_the_rights_of_the_newer_soon_after_it_is_there(
    scene: Scene, may: Callable[[Connection], Awaitable[bool]]
) -> None:
    async with scene.connection() as connection:
        async with scene.replica(in_part):
            assert not await may(connection)
        async with scene.replica(in_full):
            await eventually(lambda: may(connection), what="the rights of this release")


async def test_one_refusal_after_which_nothing_is_asked_is_enough(scene: Scene) -> None:
    async with scene.connection() as connection:
        async with scene.replica(in_part):
            assert not await may_hear(connection)
        async with scene.replica(in_full):
            await eventually(lambda: in_full in scene.granted, what="rights are asked for again")
