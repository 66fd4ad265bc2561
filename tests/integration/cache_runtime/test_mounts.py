"""What pods see of the mount: the data, or an error; never an empty tree, and never the node's disk."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness
from tests.integration.cache_runtime.mounted_pods import running_pod

from paddlewheel.contracts.generated.cache_v1 import ClearOperation, NodeMounted, NodeUnmounted
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.timeout(900)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _errno_of(path: Path) -> int:
    try:
        list(path.iterdir())
    except OSError as error:
        return error.errno or 0
    return 0


async def _told(harness: CacheHarness, count: int) -> list[str]:
    """The facts on the mount of partition 0, once there are so many."""

    async def words() -> list[str] | None:
        facts = await harness.facts(NodeMounted, NodeUnmounted)
        found = [type(fact).__name__ for fact in facts if fact.partition == 0]
        return found if len(found) >= count else None

    return await eventually(words, what=f"{count} facts")


def _kill_client(harness: CacheHarness, partition: int) -> None:
    for pid in harness.runtimes.mount_processes(partition):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.long
async def test_without_the_mount_there_is_no_directory_to_read_or_to_write(harness: CacheHarness) -> None:
    runtimes = harness.runtimes
    path = runtimes.mount_path(0)
    _write(path / "a", "data")
    on_disk = path.parent
    assert await asyncio.to_thread(runtimes.stop, 0) == 0, runtimes.log(0)
    assert _errno_of(path) == errno.ENOTCONN
    with pytest.raises(OSError, match="Transport endpoint"):
        _write(path / "b", "lost")
    # As after a restart of the node: all mounts are gone, and so is the directory. A hostPath volume of type
    # Directory keeps pods waiting.
    await asyncio.to_thread(subprocess.run, ["umount", "-l", "-R", str(on_disk)], check=True)
    assert _errno_of(path) == errno.ENOENT
    assert list(on_disk.iterdir()) == []

    await harness.start(0)
    assert (path / "a").read_text() == "data"
    with pytest.raises(OSError, match="Read-only"):
        _write(on_disk / "beside", "never")


async def test_a_running_pod_reads_again_after_the_client_died(harness: CacheHarness, tmp_path: Path) -> None:
    path = harness.runtimes.mount_path(0)
    _write(path / "a", "data")
    with running_pod(path, tmp_path / "pod") as pod:
        assert pod.run("cat", "{}/a") == (0, "data")
        await _told(harness, 1)
        for count in (3, 5):
            _kill_client(harness, 0)
            await eventually(lambda: pod.run("cat", "{}/a") == (0, "data"), what="mounted again")
            # Pods see the mount a moment before it is told; one that is lost in between is not told of.
            await _told(harness, count)
        code, output = pod.run("sh", "-c", "echo more > {}/b")
        assert (code, output) == (0, "")
    assert (path / "b").read_text() == "more\n"
    assert await _told(harness, 5) == ["NodeMounted"] + 2 * ["NodeUnmounted", "NodeMounted"]


@pytest.mark.long
async def test_a_running_pod_reads_again_after_the_agent_was_replaced(
    harness: CacheHarness, tmp_path: Path
) -> None:
    """As in a rolling update of the runtime."""
    path = harness.runtimes.mount_path(0)
    _write(path / "a", "data")
    with running_pod(path, tmp_path / "pod") as pod:
        assert await asyncio.to_thread(harness.runtimes.stop, 0) == 0
        code, output = pod.run("cat", "{}/a")
        assert code == 1
        assert "Transport endpoint is not connected" in output
        await harness.start(0)
        assert pod.run("cat", "{}/a") == (0, "data")


@pytest.mark.long
async def test_a_partition_that_leaves_its_node_leaves_nothing_there(harness: CacheHarness) -> None:
    await harness.run("leave", ClearOperation(partitions=[1]))
    assert await asyncio.to_thread(harness.runtimes.stop, 1) == 0
    assert _errno_of(harness.runtimes.mount_path(1)) == errno.ENOENT
    assert list(harness.runtimes.mount_path(1).parent.iterdir()) == []
    assert harness.runtimes.is_mounted(0)
