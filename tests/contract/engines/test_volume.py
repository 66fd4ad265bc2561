"""Volume: its size, and the removal of what is in it."""

from __future__ import annotations

from tests.contract.engines.suite import Node

from cache_runtime.domain.model import TreeSize
from paddlewheel.testkit.wait import eventually


async def test_the_size_is_that_of_all_files(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"1" * 5000, "d/e/b": b"2" * 300, "empty": b""})

        async def is_counted() -> bool:
            return await node.engine.volume.size() == TreeSize(3, 5300)

        await eventually(is_counted, what="size of three files")


async def test_a_file_or_a_directory_is_removed_with_all_that_is_in_it(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"1", "d/b": b"1", "d/e/c": b"1", "keep": b"1"})
        for name in (b"a", b"d"):
            assert await node.engine.volume.remove(await node.tree.locate(name, "paths")) == ""
        assert await node.content() == {"keep": b"1"}
        await eventually(lambda: not (node.view / "a").exists() and not (node.view / "d").exists())
        assert (node.view / "keep").read_bytes() == b"1"


async def test_a_link_is_removed_and_not_what_it_leads_to(node: Node) -> None:
    async with node.mounted():
        outside = node.top / "outside"
        outside.mkdir()
        (outside / "a").write_bytes(b"1")
        (node.engine.mount.path / "d").mkdir()
        (node.engine.mount.path / "d" / "link").symlink_to(outside)
        assert await node.engine.volume.remove(await node.tree.locate(b"d", "paths")) == ""
        assert not (node.engine.mount.path / "d").exists()
        assert (outside / "a").read_bytes() == b"1"
