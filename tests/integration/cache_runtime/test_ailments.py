"""What a mount needs is stopped, fails or fills up: that is reported with a remedy, and all is well again."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness, running
from tests.integration.cache_runtime.runtimes import RuntimeSet

from cache_runtime.engines.mounts import mounts_at
from paddlewheel.contracts.generated.cache_v1 import NodeMounted, NodeStatus, NodeUnmounted
from paddlewheel.core.sockets import free_ports
from paddlewheel.devcluster.commands import tool
from paddlewheel.testkit.link import Link
from paddlewheel.testkit.storage import JuiceFsVolume, ObjectStore
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def ports() -> list[int]:
    """Of the database and of the link, asked for at once: nobody listens on either yet."""
    return free_ports(2)


@pytest.fixture
def own_redis(tmp_path: Path, ports: list[int]) -> Iterator[subprocess.Popen[bytes]]:
    """A database that can be stopped; its address is its last argument."""
    port = ports[0]
    command = [tool("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    process = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    process.args = f"redis://127.0.0.1:{port}/1"
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture
async def link(object_store: ObjectStore, ports: list[int]) -> AsyncIterator[Link]:
    link = Link(ports[1], object_store.endpoint)
    await link.open()
    yield link
    with suppress(OSError):
        await link.cut()


@pytest.fixture
async def harness(
    tmp_path: Path,
    nats_url: str,
    juicefs_volume: JuiceFsVolume,
    own_redis: subprocess.Popen[bytes],
    link: Link,
) -> AsyncIterator[CacheHarness]:
    """One agent whose cache is on a small disk of its own."""
    bucket = f"http://127.0.0.1:{link.port}/volumes"
    volume = replace(juicefs_volume, metaurl=str(own_redis.args), bucket=bucket)
    runtimes = RuntimeSet(tmp_path, nats_url, volume)
    runtimes.cache_dir(0).mkdir()
    _mount("tmpfs", runtimes.cache_dir(0), "size=64m")
    async with running(runtimes, 0) as harness:
        yield harness


def _mount(type_: str, path: Path, options: str) -> None:
    subprocess.run(["mount", "-t", type_, "-o", options, type_, str(path)], check=True)


@contextmanager
def failing_disk(path: Path) -> Iterator[None]:
    """Whatever is asked of it fails: a file system whose server has ended."""
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    assert LIBC.mount(b"dead", os.fsencode(path), b"fuse", 0, options) == 0, os.strerror(ctypes.get_errno())
    os.close(server)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


async def _write(harness: CacheHarness, text: str) -> None:
    """In a thread: the link to the store is served by this event loop."""
    await asyncio.to_thread((harness.runtimes.mount_path(0) / "a").write_text, text)


async def _read(harness: CacheHarness) -> str:
    return await asyncio.to_thread((harness.runtimes.mount_path(0) / "a").read_text)


async def _said(harness: CacheHarness, ailment: str) -> NodeStatus:
    """The report that says so; "" = mounted, and nothing ails it."""

    async def report() -> NodeStatus | None:
        status = await harness.node_status(0)
        return status if status.ailment == ailment and (ailment or status.mounted) else None

    return await eventually(report, every=0.2, what=f"ailment {ailment!r}")


async def _check_well(harness: CacheHarness, mounted_at: object) -> None:
    """Of the same mount."""
    well = await _said(harness, "")
    assert (well.mounted, well.mount_changed_at) == (True, mounted_at), harness.runtimes.log(0)
    assert await harness.facts(NodeUnmounted) == []


async def test_a_database_that_is_silent(harness: CacheHarness, own_redis: subprocess.Popen[bytes]) -> None:
    await _write(harness, "data")
    began = (await _said(harness, "")).mount_changed_at
    own_redis.send_signal(signal.SIGSTOP)
    ill = await _said(harness, "DatabaseUnreachable")
    assert ill.mounted, "it waits, as those who read do"
    assert "correct `metaurl`" in ill.ailment_message
    own_redis.send_signal(signal.SIGCONT)
    await _check_well(harness, began)
    assert await _read(harness) == "data"


async def test_a_store_that_is_away(harness: CacheHarness, link: Link) -> None:
    began = (await _said(harness, "")).mount_changed_at
    await link.cut()
    ill = await _said(harness, "StoreUnreachable")
    assert ill.mounted
    assert f"127.0.0.1:{link.port} does not answer (Connection refused): start it" in ill.ailment_message
    await link.open()
    await _check_well(harness, began)


async def test_a_cache_disk_that_others_fill(harness: CacheHarness) -> None:
    began = (await _said(harness, "")).mount_changed_at
    ballast = harness.runtimes.cache_dir(0) / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 20)):
            pass
    ill = await _said(harness, "CacheDiskFull")
    assert ill.mounted
    assert f"cache directory {ballast.parent}: 0 % of the disk are free" in ill.ailment_message
    ballast.unlink()
    await _check_well(harness, began)


async def test_a_cache_disk_that_fails(harness: CacheHarness) -> None:
    began = (await _said(harness, "")).mount_changed_at
    with failing_disk(harness.runtimes.cache_dir(0)):
        ill = await _said(harness, "CacheDiskFailed")
        assert ill.mounted
        assert "Transport endpoint is not connected: replace the disk" in ill.ailment_message
    await _check_well(harness, began)


async def test_an_agent_on_a_cache_disk_that_fails_waits_for_another(harness: CacheHarness) -> None:
    assert await asyncio.to_thread(harness.runtimes.stop, 0) == 0
    with failing_disk(harness.runtimes.cache_dir(0)):
        harness.runtimes.start(0)
        ill = await _said(harness, "CacheDiskFailed")
        assert not ill.mounted
    await asyncio.to_thread(harness.runtimes.wait_mounted, 0)


async def test_a_client_that_hangs_is_replaced(harness: CacheHarness) -> None:
    """Stopped, so that it neither answers nor ends."""
    await _write(harness, "data")

    async def is_announced() -> bool:
        return any(fact.partition == 0 for fact in await harness.facts(NodeMounted))

    await eventually(is_announced, what="it is mounted")
    for pid in harness.runtimes.mount_processes(0):
        os.kill(pid, signal.SIGSTOP)

    async def is_lost() -> bool:
        return [type(fact) for fact in await harness.facts(NodeUnmounted)] == [NodeUnmounted]

    await eventually(is_lost, what="it is noticed")
    await asyncio.to_thread(harness.runtimes.wait_mounted, 0)
    assert await _read(harness) == "data"


async def test_a_client_that_hangs_for_a_moment_is_told_of_and_stays(harness: CacheHarness) -> None:
    """What has it open goes on."""
    await _write(harness, "data")
    began = (await _said(harness, "")).mount_changed_at
    with (harness.runtimes.mount_path(0) / "a").open() as file:
        clients = harness.runtimes.mount_processes(0)
        for pid in clients:
            os.kill(pid, signal.SIGSTOP)
        ill = await _said(harness, "MountSilent")
        for pid in clients:
            os.kill(pid, signal.SIGCONT)
        assert ill.mounted, "it is given up later"
        assert "did not answer for 2.5 s" in ill.ailment_message
        await _check_well(harness, began)
        assert await asyncio.to_thread(file.read) == "data"


async def test_the_mount_of_a_machine_that_is_busy_is_not_taken_for_silent(harness: CacheHarness) -> None:
    """Where the agent and the client get a tenth of the processors."""
    began = (await _said(harness, "")).mount_changed_at
    with _busy(10 * (os.cpu_count() or 1)):
        for _ in range(30):
            status = await harness.node_status(0)
            assert (status.mounted, status.ailment) == (True, ""), status.ailment_message
            await asyncio.sleep(1.0)
    await _check_well(harness, began)
    assert "file system does not answer" not in harness.runtimes.log(0)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many processes that compute; they end by themselves, too."""
    burn = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    burners = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait(10)


async def test_a_client_that_hangs_as_soon_as_it_has_mounted_is_replaced(harness: CacheHarness) -> None:
    """Before its file system is shown to pods, or while that is being done."""
    for _ in range(3):
        assert await asyncio.to_thread(harness.runtimes.stop, 0) == 0
        harness.runtimes.start(0)
        volume = harness.runtimes.state_dir(0) / "volume"
        await asyncio.to_thread(_wait_mount, volume)
        for pid in harness.runtimes.mount_processes(0):
            os.kill(pid, signal.SIGSTOP)
        await asyncio.to_thread(harness.runtimes.wait_mounted, 0)


def _wait_mount(path: Path) -> None:
    """Until the kernel has a mount there; it is not touched."""
    deadline = time.monotonic() + 60
    while not mounts_at(path):
        assert time.monotonic() < deadline, f"nothing is mounted at {path}"
        time.sleep(0.005)
