"""Mount: pods see the data or an error, and the data again when the mount is back."""

from __future__ import annotations

import asyncio
import errno
import subprocess

import pytest
from tests.contract.engines.suite import Node
from tests.integration.cache_runtime.mounted_pods import running_pod

from paddlewheel.testkit.suites import long_after
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.parametrize(
    "tested", long_after(1, ["juicefs-redis", "juicefs-postgres", "juicefs-etcd"]), indirect=True
)

READ = ("cat", "{}/a")


async def test_the_directory_exists_with_the_mount_only(node: Node) -> None:
    assert not node.engine.mount.is_mounted
    assert not node.view.exists()
    async with node.mounted():
        await node.fill({"a": b"data"})
        await node.seen("a", b"data")
        assert (node.engine.mount.message, node.engine.mount.ailment) == ("", None)
        assert node.engine.mount.changed_at is not None
        with pytest.raises(OSError, match="Read-only"):
            (node.view.parent / "beside").touch()
    assert not node.engine.mount.is_mounted
    assert node.engine.mount.message == "stopped"
    assert node.told == ["", "stopped"]


async def test_what_is_stopped_fails_and_is_neither_empty_nor_the_disk_of_the_node(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"data"})
    for attempt in (lambda: list(node.view.iterdir()), (node.view / "b").touch, (node.view / "a").read_bytes):
        with pytest.raises(OSError, match=r".") as caught:
            attempt()
        assert caught.value.errno == errno.ENOTCONN


async def test_a_running_pod_reads_again_when_the_next_process_has_mounted(node: Node) -> None:
    """As in a rolling update of the runtime."""
    async with node.mounted():
        await node.fill({"a": b"data"})
        await node.seen("a", b"data")
        pod_of = running_pod(node.view, node.top / "pod")
        pod = await asyncio.to_thread(pod_of.__enter__)
        assert await asyncio.to_thread(pod.run, *READ) == (0, "data")
    try:
        code, output = await asyncio.to_thread(pod.run, *READ)
        assert (code, "Transport endpoint is not connected" in output) == (1, True)
        node.next_process()
        async with node.mounted():
            assert await asyncio.to_thread(pod.run, *READ) == (0, "data")
    finally:
        await asyncio.to_thread(pod_of.__exit__, None, None, None)


async def test_a_mount_that_is_lost_is_told_and_comes_back_by_itself(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"data"})
        await node.seen("a", b"data")
        await asyncio.to_thread(subprocess.run, ["umount", "-l", str(node.view)], check=True)
        await eventually(lambda: node.told[1:], what="loss of the mount")
        assert "unmounted" in node.told[1]
        await eventually(lambda: node.told[2:], what="mounted again")
        assert node.told[2] == ""
        assert node.engine.mount.is_mounted
        await node.seen("a", b"data")


async def test_a_partition_that_leaves_takes_all_away(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"data"})
        node.engine.mount.leave()
    assert not node.view.exists()
    assert list(node.view.parent.iterdir()) == []


async def test_what_cannot_be_mounted_says_why_and_is_mounted_when_it_can(node: Node) -> None:
    secret = node.settings.secrets_dir / "engine.bucket"
    kept = secret.read_text()
    secret.unlink()
    async with node.running():
        await eventually(lambda: node.engine.mount.ailment, what="a reason")
        ailment = node.engine.mount.ailment
        assert ailment is not None
        assert ailment.reason == "SecretMissing"
        assert "add key 'bucket' to the engine secret" in node.engine.mount.message
        assert not node.engine.mount.is_mounted
        assert not node.view.exists()
        secret.write_text(kept)
        async with asyncio.timeout(90):
            await node.engine.mount.wait_mounted()
