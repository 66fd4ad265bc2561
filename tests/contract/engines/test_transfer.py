"""Transfer: what is listed, what counts as copied, what is deleted, and what a source cannot reach."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from tests.contract.engines.suite import NEW, OLD, Node

from cache_runtime.engines.ports import Copied
from paddlewheel.core.errors import Permanent

ODD = {"a b": b"1", "d/\u00e9": b"22", "d/x\ny": b"333", "dt=1/-": b"", "z\u3000": b"55555"}


async def test_every_object_is_listed_with_its_size_by_its_key(node: Node) -> None:
    async with node.mounted():
        node.put(ODD)
        listed = await node.listed()
        assert listed == sorted((name, len(content)) for name, content in ODD.items())
        assert await node.listed() == listed


async def test_start_and_end_are_listed_themselves(node: Node) -> None:
    async with node.mounted():
        node.put({"a": b"", "b": b"", "c/d": b"", "e": b""})
        assert await node.listed(start="b", end="c/d") == [("b", 0), ("c/d", 0)]


async def test_what_is_copied_is_in_the_data_set(node: Node) -> None:
    async with node.mounted():
        node.put(ODD)
        assert await node.copy(*ODD) == {}
        assert await node.content() == ODD
        await node.seen("d/\u00e9", b"22")


async def test_the_volume_has_the_sizes_of_its_files(node: Node) -> None:
    """Files that do not exist, and directories, have none. Some of these keys no line of a list can hold."""
    async with node.mounted():
        await node.fill({f"train/{name}": content for name, content in {**ODD, "d/x": b"1"}.items()})
        keys = [os.fsencode(name) for name in (*ODD, "d", "gone", "gone\n")]
        sizes = await node.engine.transfer.sizes(node.sync(destination="train"), keys)
        assert sizes == {os.fsencode(name): len(content) for name, content in ODD.items()}


async def test_a_destination_is_below_the_root(node: Node) -> None:
    async with node.mounted():
        node.put({"a": b"1"})
        assert await node.copy("a", destination="train/raw") == {}
        assert await node.content() == {"train/raw/a": b"1"}


async def test_a_key_that_has_left_the_source_is_named_and_the_others_arrive(node: Node) -> None:
    """Although the data set has a file of its size from before."""
    async with node.mounted():
        await node.fill({"gone": b"old"})
        node.put({"a": b"1", "b": b"2"})
        failed = await node.copy("a", "gone", "b")
        assert set(failed) == {"gone"}
        assert "left the source" in failed["gone"]
        assert await node.content() == {"a": b"1", "b": b"2", "gone": b"old"}


async def test_no_link_of_a_source_is_followed(node: Node) -> None:
    """The agent is privileged, and whoever writes into a source may put links there."""
    async with node.mounted():
        (node.top / "stolen").mkdir()
        (node.top / "stolen" / "key").write_bytes(b"secret")
        node.put({"a": b"1"})
        (node.lent / "file").symlink_to(node.top / "stolen" / "key")
        (node.lent / "folder").symlink_to(node.top / "stolen")
        failed = await node.copy("a", "file")
        assert set(failed) == {"file"}
        assert "symbolic links" in failed["file"]
        assert set(await node.copy("folder/key")) == {"folder/key"}
        assert await node.content() == {"a": b"1"}


@pytest.mark.parametrize("source", ["/etc", "/", "{lent}/../secrets", "{lent}/none"])
async def test_a_source_that_the_operator_has_not_lent_is_refused(node: Node, source: str) -> None:
    async with node.mounted():
        uri = f"file://{source.format(lent=node.lent)}"
        with pytest.raises(Permanent, match="source") as caught:
            await node.listed(source=uri)
        assert caught.value.reason == "SourceNotAllowed"
        with pytest.raises(Permanent, match="source"):
            await node.copy("hostname", source=uri)


async def test_an_update_keeps_what_is_newer_in_the_data_set(node: Node) -> None:
    async with node.mounted():
        await node.fill({"newer": b"by hand", "older": b"old"})
        node.put({"newer": b"1"}, OLD)
        node.put({"older": b"new"}, NEW + 10)
        assert await node.copy("newer", "older", update=True) == {}
        assert await node.content() == {"newer": b"by hand", "older": b"new"}


async def test_what_is_complete_already_is_kept_and_counted(node: Node) -> None:
    async with node.mounted():
        node.put({"a": b"a", "b": b"b", "d/c": b"c", " e": b"e"})
        assert await node.copied("a", "b", " e") == Copied()
        assert await node.copied("a", "b", "d/c", " e") == Copied(kept=3)
        assert await node.copied("a", "b", force_update=True) == Copied()


async def test_a_forced_update_copies_what_has_the_same_size(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"old"})
        node.put({"a": b"new"})
        assert await node.copy("a", force_update=True) == {}
        assert await node.content() == {"a": b"new"}


@pytest.mark.parametrize(
    ("options", "kept", "content"),
    [
        ({}, 2, {"same": b"old", "size": b"longer", "newer": b"of old", " x": b"old"}),
        ({"update": True}, 1, {"same": b"new", "size": b"longer", "newer": b"by hand", " x": b"new"}),
        ({"force_update": True}, 0, {"same": b"new", "size": b"longer", "newer": b"of old", " x": b"new"}),
    ],
)
async def test_what_is_there_and_is_not_compared_is_counted(
    node: Node, options: dict[str, object], kept: int, content: dict[str, bytes]
) -> None:
    """Each of the three ways to sync keeps other files. The last one is copied by itself by JuiceFS."""
    async with node.mounted():
        await node.fill({"same": b"old", "size": b"old", " x": b"old"}, OLD)
        await node.fill({"newer": b"by hand"})
        node.put({"same": b"new", "size": b"longer", " x": b"new", "late": b"late"})
        node.put({"newer": b"of old"}, OLD)
        assert await node.kept("same", "size", "newer", " x", "late", **options) == kept
        assert await node.content() == {**content, "late": b"late"}


async def test_only_what_the_source_lacks_is_deleted_and_nothing_copied(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"edited by hand", "extra": b"x", "d/extra": b"x"})
        node.put({"a": b"a", "late": b"late"})
        await node.delete_extra(delete_dst=True)
        assert await node.content() == {"a": b"edited by hand"}


async def test_nothing_is_deleted_outside_the_destination_or_the_range(node: Node) -> None:
    async with node.mounted():
        await node.fill({"keep": b"1", "d/a": b"1", "d/b": b"1", "d/c": b"1"})
        node.put({"z": b"1"})
        await node.delete_extra(delete_dst=True, destination="d", start="b", end="b")
        assert set(await node.content()) == {"keep", "d/a", "d/c"}


async def test_nothing_is_deleted_when_the_source_cannot_be_listed(node: Node) -> None:
    async with node.mounted():
        await node.fill({"a": b"1"})
        with pytest.raises(Permanent):
            await node.delete_extra(source=f"file://{node.lent}/none")
        assert await node.content() == {"a": b"1"}


async def test_nothing_is_deleted_for_a_source_that_is_mounted_anew_after_it_was_read(node: Node) -> None:
    """As an export that is unmounted meanwhile: what was read has all files, the directory below it none."""
    async with node.mounted():
        await node.fill({"a": b"1", "b": b"2", "extra": b"3"})
        node.put({"a": b"1", "b": b"2", "d/c": b"3"})
        reading = await node.engine.transfer.read_source(node.sync(delete_dst=True))
        assert (reading.size.files, reading.size.bytes) == (3, 3)
        mount = ("mount", "-t", "tmpfs", "tmpfs", str(node.lent))
        await asyncio.to_thread(subprocess.run, mount, check=True)
        assert await node.listed() == []
        await reading.delete_extra()
        assert await node.content() == {"a": b"1", "b": b"2"}


async def test_what_is_lent_is_never_deleted(node: Node) -> None:
    """It is read-only, and that is said, not passed over."""
    async with node.mounted():
        node.put({"a": b"1"})
        assert await node.copy("a") == {}
        with pytest.raises(Permanent) as caught:
            await node.engine.transfer.delete_copied(node.sync(delete_src=True), 0, set())
        assert caught.value.reason == "DeleteFailed"
        assert Path(node.lent, "a").read_bytes() == b"1"
        assert await node.content() == {"a": b"1"}
