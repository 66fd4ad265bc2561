"""A new key reaches the process and the servers in either order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bus_auth.key_watch import KeyWatch
from bus_auth.timing import KEY_FILE_CHECK_INTERVAL_SECONDS
from paddlewheel.bus.callout.keys import CalloutKey
from paddlewheel.core.errors import Permanent
from paddlewheel.core.tasks import end
from paddlewheel.testkit.clock import ManualClock


@dataclass
class Servers:
    another: bool = False

    async def use_another_key(self) -> bool:
        return self.another


def write_key(file: Path) -> None:
    key = Ed25519PrivateKey.generate()
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@dataclass
class Watching:
    """A process that has read the file."""

    file: Path
    watch: KeyWatch
    servers: Servers
    clock: ManualClock
    task: asyncio.Task[None]

    async def look(self) -> None:
        await asyncio.sleep(0)
        await self.clock.advance(KEY_FILE_CHECK_INTERVAL_SECONDS)
        await asyncio.sleep(0)


@pytest.fixture
async def watching(tmp_path: Path) -> AsyncIterator[Watching]:
    file, servers, clock = tmp_path / "tls.key", Servers(), ManualClock()
    write_key(file)
    watch = KeyWatch(file, CalloutKey(file), servers, clock)
    task = asyncio.create_task(watch.run())
    yield Watching(file, watch, servers, clock, task)
    await end(task)


async def test_the_key_in_use_stays_so_while_the_servers_have_it(watching: Watching) -> None:
    await watching.look()
    assert await watching.watch.is_current() is True

    write_key(watching.file)
    await watching.look()

    assert "rollout restart statefulset/nats" in str(await watching.watch.is_current())
    assert not watching.task.done()


async def test_when_the_servers_have_the_new_key_the_process_ends(watching: Watching) -> None:
    write_key(watching.file)
    watching.servers.another = True
    await watching.look()

    with pytest.raises(Permanent, match="KeyReplaced"):
        await watching.task


async def test_a_server_that_is_away_ends_nothing(watching: Watching) -> None:
    watching.servers.another = True
    await watching.look()

    assert await watching.watch.is_current() is True
    assert not watching.task.done()


@pytest.mark.parametrize("content", [b"", b"nonsense"])
async def test_a_file_that_is_being_written_is_looked_at_again(watching: Watching, content: bytes) -> None:
    watching.servers.another = True
    watching.file.write_bytes(content)
    await watching.look()

    assert not watching.task.done()
