"""Every test of this folder runs on JuiceFS with each kind of metadata.

All but those of the mount run on the plain engine, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.contract.engines import plain
from tests.contract.engines.suite import EngineUnderTest, Node
from tests.integration.cache_runtime.mounted_pods import unmount_below

from cache_runtime.engines import juicefs
from paddlewheel.testkit.storage import JuiceFsVolume

_QUICK = {"mount_options": {"free-space-ratio": "0.01", "backup-meta": "0"}}


@pytest.fixture(
    params=[
        "juicefs-redis",
        pytest.param("juicefs-postgres", marks=pytest.mark.long),
        pytest.param("juicefs-etcd", marks=pytest.mark.long),
        "plain",
    ]
)
def tested(request: pytest.FixtureRequest, tmp_path: Path) -> EngineUnderTest:
    """An engine with a volume of this test alone."""
    if request.param == "plain":
        return EngineUnderTest(partial(plain.create_engine, tmp_path / "volume"))
    volume: JuiceFsVolume = request.getfixturevalue("juicefs_volume")
    if request.param == "juicefs-postgres":
        create = request.getfixturevalue("new_postgres_database")
        volume = replace(volume, metaurl=create(volume.name))
    elif request.param == "juicefs-etcd":
        address = request.getfixturevalue("etcd_address")
        volume = replace(volume, metaurl=f"etcd://{address}/{volume.name}")
    return EngineUnderTest(juicefs.create_engine, volume.secret(), _QUICK)


@pytest.fixture
async def node(tmp_path: Path, tested: EngineUnderTest) -> AsyncIterator[Node]:
    """Not mounted yet."""
    node = Node(tmp_path, tested)
    try:
        yield node
    finally:
        await node.engine.transfer.close()
        unmount_below(tmp_path)
