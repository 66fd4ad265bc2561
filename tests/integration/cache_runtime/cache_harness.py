"""Drives real agents of one data set over the bus, as dataset-controller does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from tests.integration.cache_runtime.runtimes import RuntimeSet

from cache_runtime.engines.juicefs.control import INTERNAL_INODES
from cache_runtime.engines.juicefs.control_file import ControlFile
from paddlewheel.bus import connect
from paddlewheel.bus.ports import Bus, Reading
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds.operations import operation_for_model
from paddlewheel.contracts.generated.cache_v1 import NodeStatus, PartitionState, RunPhase, RunSpec, RunState
from paddlewheel.contracts.run_keys import NodeKey, RunKey
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import NotFound
from paddlewheel.testkit.wait import eventually, patiently

M = TypeVar("M", bound=WireModel)

FINAL = (RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.CANCELLED)


@dataclass
class CacheHarness:
    """Agents of a data set, and the records and facts of its runs."""

    runtimes: RuntimeSet
    bus: Bus

    async def start(self, *partitions: int) -> None:
        """Start agents and wait until they have mounted."""
        for partition in partitions:
            self.runtimes.start(partition)
        await asyncio.to_thread(self.runtimes.wait_mounted, *partitions)

    async def request(self, run_id: str, operation: WireModel, partitions: int = 2) -> None:
        """Write the spec of a run."""
        spec = RunSpec.model_validate(
            {
                "run_id": run_id,
                "set_namespace": self.runtimes.namespace,
                "set_name": self.runtimes.name,
                "set_uid": self.runtimes.uid,
                "partitions": partitions,
                operation_for_model(operation).member: operation,
                "requested_at": datetime.now(UTC),
            }
        )
        await self._put(self._key(run_id).spec, to_json(spec))

    async def cancel(self, run_id: str) -> None:
        await self._put(self._key(run_id).cancel, b"{}")

    async def run(self, run_id: str, operation: WireModel, within: float = 90.0) -> RunState:
        """Request a run and wait for its end."""
        await self.request(run_id, operation)
        return await self.ended(run_id, within)

    async def ended(self, run_id: str, within: float = 90.0) -> RunState:
        """Wait until a run has ended. Raises AssertionError with the logs of the agents."""

        async def final() -> RunState | None:
            state = await self.state(run_id)
            return state if state.phase in FINAL and not state.closing else None

        try:
            return await eventually(final, within=within, every=0.1, what=f"end of {run_id}")
        except AssertionError as error:
            logs = "\n".join(self.runtimes.log(p)[-4000:] for p in (0, 1))
            raise AssertionError(f"{error}\n{await self.state(run_id)}\n{logs}") from error

    async def state(self, run_id: str) -> RunState:
        """The record; empty while there is none."""
        return await self._read(RUNS_BUCKET, self._key(run_id).state, RunState)

    async def part(self, run_id: str, partition: int) -> PartitionState:
        """The record; empty while there is none."""
        return await self._read(RUNS_BUCKET, self._key(run_id).part(partition), PartitionState)

    async def put_part(self, run_id: str, part: PartitionState) -> None:
        """Write a record in place of an agent."""
        await self._put(self._key(run_id).part(part.partition), to_json(part))

    async def node_status(self, partition: int) -> NodeStatus:
        """The record; empty while there is none."""
        return await self._read(NODES_BUCKET, str(NodeKey(self.runtimes.uid, partition)), NodeStatus)

    async def facts(self, *kinds: type[WireModel]) -> list[Any]:
        """All facts of these kinds stored so far, oldest first."""
        subject = event_filter("cache", namespace=self.runtimes.namespace, uid=self.runtimes.uid)
        reading = Reading((subject,), datetime(2020, 1, 1, tzinfo=UTC), follow=False)

        async def read() -> list[Any]:
            return [delivery.event.data async for delivery in self.bus.read(reading)]

        return [fact for fact in await patiently(read) if isinstance(fact, kinds)]

    async def uncached(self, top: Path) -> list[Path]:
        """Files below `top` (relative to the data set) that no partition's cache holds completely."""
        return sorted(await self.cold(0, top) & await self.cold(1, top))

    async def cold(self, partition: int, top: Path) -> set[Path]:
        """Files that this partition's cache does not hold completely."""
        root = self.runtimes.mount_path(partition)
        control = ControlFile(root)
        cold = set()
        for path in [p for p in (root / top).rglob("*") if p.is_file()]:
            inode = path.lstat().st_ino
            report = await control.check([inode], 1)
            if inode not in INTERNAL_INODES and (report.missing or report.files != 1):
                cold.add(path.relative_to(root))
        return cold

    def _key(self, run_id: str) -> RunKey:
        return RunKey(self.runtimes.uid, run_id)

    async def _put(self, key: str, value: bytes) -> None:
        bucket = self.bus.key_value(RUNS_BUCKET)
        await patiently(lambda: bucket.put(key, value))

    async def _read(self, bucket: str, key: str, model: type[M]) -> M:
        """Raises Retry when the bus stays away: an empty record means that there is none."""
        try:
            entry = await patiently(lambda: self.bus.key_value(bucket).get(key))
        except NotFound:
            return model()
        return from_json(model, entry.value or b"{}")


def fill(top: Path, files: int, size: int = 10_000, suffix: str = ".bin") -> None:
    """Files of the same size in three directories `d0`, `d1`, `d2`."""
    for number in range(files):
        path = top / f"d{number % 3}" / f"{number}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number % 256]) * size)


@asynccontextmanager
async def running(runtimes: RuntimeSet, *partitions: int) -> AsyncIterator[CacheHarness]:
    """Agents that have mounted. All agents of the set end with the context."""
    harness = CacheHarness(runtimes, await connect(runtimes.nats_url, name="test"))
    try:
        await harness.start(*partitions)
        yield harness
    finally:
        await asyncio.to_thread(runtimes.close)
        await harness.bus.close()
