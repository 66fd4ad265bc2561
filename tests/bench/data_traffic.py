"""What a run asks of the bus for each chunk: real masters and agents on a real server, without files."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from opentelemetry.metrics import NoOpMeterProvider
from tests.bench.data_stand import Relay
from tests.bench.rows import Row

from cache_runtime.context import RunContext
from cache_runtime.domain.chunking import Limits
from cache_runtime.domain.model import Batch, File, Identity, ListedChunk
from cache_runtime.facts import SOURCE, Facts
from cache_runtime.metrics import Metrics
from cache_runtime.operations.base import RunOperation
from cache_runtime.publication import pack
from cache_runtime.reconciler import RunReconciler
from cache_runtime.records import RunStore
from paddlewheel.bus import connect
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.generated.cache_v1 import (
    FileEntry,
    NodeStatus,
    RunPhase,
    RunSpec,
    RunState,
    WarmupOperation,
)
from paddlewheel.contracts.run_keys import NodeKey, RunKey
from paddlewheel.contracts.wire import to_json
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import NotFound
from paddlewheel.core.tasks import end
from paddlewheel.testkit.nats import NatsServer

AGENTS, CHUNKS, FILES_PER_CHUNK = 100, 16_000, 63
REPORT_EVERY = 10.0
"""Seconds, the default of an agent."""
GOAL = 4096.0
LIMIT = 3600.0
SET, RUN = "set-1", "run-1"


async def measure() -> list[Row]:
    """A tenth of the chunks of 10 TB; what is sent by the clock counts in full."""
    with tempfile.TemporaryDirectory(prefix="paddlewheel-bench-") as folder:
        server = NatsServer(Path(folder))
        server.start()
        relay = Relay(server.url.removeprefix("nats://"))
        await relay.start()
        try:
            state = await _run(f"nats://{relay.endpoint}")
        finally:
            await relay.stop()
            server.stop()
    assert state.phase is RunPhase.SUCCEEDED, state.message
    lists = 2 * sum(len(pack(_chunk(number))) for number in range(100)) / 100
    chunk = (relay.received + relay.sent) / CHUNKS
    return [
        Row("data.floor_list_of_one_chunk_there_and_back", lists, GOAL, "B"),
        Row(f"data.traffic_per_chunk_of_{AGENTS}_agents_beside_its_list", chunk - lists, GOAL, "B"),
    ]


class _Mounted:
    is_mounted = True

    async def wait_mounted(self) -> None:
        return


class _Nothing(RunOperation):
    """Lists names as they are, and takes each file for done."""

    rejected: Mapping[str, str] = {}
    notes: Mapping[str, str] = {}
    kept = uncompared = 0
    away: Collection[str] = ()

    async def list(self, spec: RunSpec) -> AsyncGenerator[Batch, None]:
        for number in range(CHUNKS):
            yield Batch(_files(number), number % AGENTS)

    async def prepare(self, spec: RunSpec, files: Sequence[FileEntry], partition: int) -> _Nothing:
        return self

    def kept_since(self, at: datetime) -> int:
        return 0

    async def execute(self, files: Sequence[FileEntry]) -> None:
        return

    async def verify(self, files: Sequence[FileEntry]) -> Mapping[str, str]:
        return {}


def _files(number: int) -> list[File]:
    """Names of 36 characters that do not compress, of a megabyte each."""
    random = Random(number)
    return [File(f"{random.getrandbits(144):036x}", 1 << 20) for _ in range(FILES_PER_CHUNK)]


def _chunk(number: int) -> ListedChunk:
    return ListedChunk(RUN, 0, number, _files(number))


async def _run(url: str) -> RunState:
    async with AsyncExitStack() as stack:
        buses = [await connect(url, name=f"agent-{index}") for index in range(AGENTS)]
        for bus in buses:
            stack.push_async_callback(bus.close)
        tasks = [
            asyncio.create_task(work(index, bus))
            for index, bus in enumerate(buses)
            for work in (_report, _serve)
        ]
        stack.push_async_callback(end, *tasks)
        spec = RunSpec(
            run_id=RUN, set_uid=SET, set_namespace="a", set_name="s", partitions=AGENTS,
            warmup=WarmupOperation(), requested_at=datetime.now(UTC),
        )  # fmt: skip
        await buses[0].key_value(RUNS_BUCKET).put(RunKey(SET, RUN).spec, to_json(spec))
        return await _ended(buses[0], tasks)


async def _report(index: int, bus: Bus) -> None:
    while True:
        report = NodeStatus(partition=index, node=f"node-{index}", mounted=True, updated_at=datetime.now(UTC))
        await bus.key_value(NODES_BUCKET).put(str(NodeKey(SET, index)), to_json(report))
        await asyncio.sleep(REPORT_EVERY)


async def _serve(index: int, bus: Bus) -> None:
    identity = Identity("a", "s", SET, f"pod-{index}", index, f"node-{index}")
    clock, bucket = SystemClock(), bus.key_value(RUNS_BUCKET)
    context = RunContext(
        identity=identity,
        store=RunStore(bucket, SET),
        work=bus.work,
        nodes=bus.key_value(NODES_BUCKET),
        facts=Facts(bus, identity, clock),
        clock=clock,
        metrics=Metrics(NoOpMeterProvider().get_meter(SOURCE)),
        mount=_Mounted(),  # type: ignore[arg-type]
        operations={"warmup": _Nothing()},
        limits=Limits(bytes=FILES_PER_CHUNK << 20),
    )
    await RunReconciler(bucket, context, lambda: None).run()


async def _ended(bus: Bus, tasks: Sequence[asyncio.Task[None]]) -> RunState:
    deadline = time.monotonic() + LIMIT
    store = RunStore(bus.key_value(RUNS_BUCKET), SET)
    while time.monotonic() < deadline:
        for task in tasks:
            if task.done():
                task.result()
        with suppress(NotFound):
            state, _ = await store.state(RUN)
            if state.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED):
                return state
        await asyncio.sleep(2)
    raise AssertionError(f"not ended within {LIMIT:.0f} s")
