"""What an agent reports about its node fits into the bucket."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from cache_runtime.domain.model import Identity
from cache_runtime.engines.ports import Ailment, Engine
from cache_runtime.node import MESSAGE_MAX, CacheLimit, NodeReporter
from paddlewheel.bus.memory import MemoryBus
from paddlewheel.bus.streams import NODES, NODES_BUCKET
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.wire import from_json
from paddlewheel.core.clock import ManualClock


async def _nothing_staged() -> int:
    return 0


async def test_why_it_is_not_mounted_is_reported_however_long_it_is() -> None:
    nodes = MemoryBus().key_value(NODES_BUCKET)
    text = "\x01" * NODES.max_msg_size
    mount = SimpleNamespace(
        is_mounted=False, message=text, ailment=Ailment("MountFailed", text), changed_at=None
    )
    engine = cast(Engine, SimpleNamespace(mount=mount, cache=SimpleNamespace(staged_bytes=_nothing_staged)))
    me = Identity(set_namespace="ns", set_name="digits", set_uid="uid", partition=0, pod="pod", node="node")

    await NodeReporter(nodes, me, engine, [], CacheLimit(0), ManualClock(), 10.0).report()

    entry = await nodes.get("uid.0")
    assert entry is not None
    assert len(entry.value or b"") < NODES.max_msg_size
    assert from_json(NodeStatus, entry.value or b"").message == "\x01" * MESSAGE_MAX
