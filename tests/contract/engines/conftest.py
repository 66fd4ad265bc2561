"""Every engine: every test of this folder runs on JuiceFS with each kind of metadata, and on the others."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.engines.suite import EngineUnderTest, Node
from tests.integration.cache_runtime.mounted_pods import unmount_below

from cache_runtime.engines.directory import mount as directory_mount
from cache_runtime.engines.directory.shared import MARKER
from paddlewheel.testkit.storage import JuiceFsVolume

_QUICK = {"mount_options": {"free-space-ratio": "0.01", "backup-meta": "0"}}


def _juicefs(volume: JuiceFsVolume) -> EngineUnderTest:
    return EngineUnderTest("juicefs", volume.secret(), _QUICK)


def _directory(shared: Path) -> EngineUnderTest:
    """What every node would have mounted is a directory beside."""
    volume = shared / "team" / "set"
    volume.mkdir(parents=True)
    (volume / os.fsdecode(MARKER)).touch()
    settings = {"shared_volumes": (str(shared),), "mount_options": {"free-space-ratio": "0.01"}}
    return EngineUnderTest("directory", {"bucket": f"file://{volume}"}, settings)


@pytest.fixture(params=["juicefs-redis", "juicefs-postgres", "juicefs-etcd", "directory"])
def tested(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> EngineUnderTest:
    """An engine with a volume of this test alone."""
    if request.param == "directory":
        monkeypatch.setattr(directory_mount, "SWEEP_EVERY", 0.2)
        return _directory(tmp_path / "shared")
    volume: JuiceFsVolume = request.getfixturevalue("juicefs_volume")
    if request.param == "juicefs-postgres":
        create = request.getfixturevalue("new_postgres_database")
        volume = replace(volume, metaurl=create(volume.name))
    elif request.param == "juicefs-etcd":
        address = request.getfixturevalue("etcd_address")
        volume = replace(volume, metaurl=f"etcd://{address}/{volume.name}")
    return _juicefs(volume)


@pytest.fixture
async def node(tmp_path: Path, tested: EngineUnderTest) -> AsyncIterator[Node]:
    """Not mounted yet."""
    node = Node(tmp_path, tested)
    try:
        yield node
    finally:
        await node.engine.transfer.close()
        unmount_below(tmp_path)
