"""Two real agents of one data set, with the records and facts on a real bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cache_runtime.adapters.control_file import ControlFile
from cache_runtime.domain.control import INTERNAL_INODE
from paddlewheel.bus import connect
from paddlewheel.bus.ports import Bus
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    PartitionState,
    RemoveOperation,
    RunPhase,
    RunSpec,
    RunState,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.contracts.wire import from_json, to_json
from paddlewheel.core.errors import NotFound, Retry
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.runtimes import RuntimeSet
from paddlewheel.testkit.storage import JuiceFsVolume, ObjectStore
from paddlewheel.testkit.wait import eventually

Operation = SyncOperation | WarmupOperation | RemoveOperation | ClearOperation
FINAL = (RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.CANCELLED)


@dataclass
class Rig:
    """What a test drives: the agents, the bus, and the commands dataset-controller would write."""

    runtimes: RuntimeSet
    bus: Bus

    async def ask(self, run_id: str, operation: Operation, partitions: int = 2) -> None:
        """Write the run's spec."""
        kind = type(operation).__name__.removesuffix("Operation").lower()
        spec = RunSpec.model_validate(
            {
                "run_id": run_id,
                "set_namespace": self.runtimes.namespace,
                "set_name": self.runtimes.name,
                "set_uid": self.runtimes.uid,
                "partitions": partitions,
                kind: operation,
                "requested_at": datetime.now(UTC),
            }
        )
        await self._put(f"{run_id}.spec", to_json(spec))

    async def cancel(self, run_id: str) -> None:
        await self._put(f"{run_id}.cancel", b"{}")

    async def _put(self, key: str, value: bytes) -> None:
        await self.bus.key_value("pw_cache_runs").put(f"{self.runtimes.uid}.{key}", value)

    async def state(self, run_id: str) -> RunState:
        """Empty while there is none."""
        try:
            entry = await self.bus.key_value("pw_cache_runs").get(f"{self.runtimes.uid}.{run_id}.state")
        except (NotFound, Retry):
            return RunState()
        return from_json(RunState, entry.value or b"{}")

    async def part(self, run_id: str, partition: int) -> PartitionState:
        """Empty while there is none."""
        key = f"{self.runtimes.uid}.{run_id}.part-{partition}"
        try:
            entry = await self.bus.key_value("pw_cache_runs").get(key)
        except (NotFound, Retry):
            return PartitionState()
        return from_json(PartitionState, entry.value or b"{}")

    async def ended(self, run_id: str, within: float = 90.0) -> RunState:
        """Wait for the end of a run."""

        async def final() -> RunState | None:
            state = await self.state(run_id)
            return state if state.phase in FINAL else None

        try:
            return await eventually(final, within=within, every=0.1, what=f"end of {run_id}")
        except AssertionError as error:
            logs = "\n".join(self.runtimes.log(p)[-4000:] for p in (0, 1))
            raise AssertionError(f"{error}\n{await self.state(run_id)}\n{logs}") from error

    async def run(self, run_id: str, operation: Operation, within: float = 90.0) -> RunState:
        """Ask and wait for the end."""
        await self.ask(run_id, operation)
        return await self.ended(run_id, within)

    async def start(self, *partitions: int) -> None:
        """Start agents and wait until they have mounted."""
        for partition in partitions:
            self.runtimes.start(partition)
        await asyncio.to_thread(self.runtimes.wait_mounted, *partitions)

    async def uncached(self, top: Path) -> list[Path]:
        """Files below `top` (relative to the set) that lie whole in no partition's cache."""
        missing: set[Path] | None = None
        for partition in (0, 1):
            cold = await self.cold(partition, top)
            missing = cold if missing is None else missing & cold
        return sorted(missing or ())

    async def cold(self, partition: int, top: Path) -> set[Path]:
        """Files that do not lie whole in this partition's cache."""
        root = self.runtimes.mount_path(partition)
        control = ControlFile(root)
        cold = set()
        for path in [p for p in (root / top).rglob("*") if p.is_file()]:
            inode = path.lstat().st_ino
            report = await control.check([inode], 1)
            if inode < INTERNAL_INODE and (report.missing or report.files != 1):
                cold.add(path.relative_to(root))
        return cold


@pytest.fixture
def chunk_settings() -> dict[str, str]:
    """Override to make chunks small or the store slow."""
    return {}


def _with_keys(runtimes: RuntimeSet, store: ObjectStore) -> RuntimeSet:
    runtimes.write_secret("source", {"access-key": store.access_key, "secret-key": store.secret_key})
    return runtimes


@pytest.fixture
async def rig(
    tmp_path: Path,
    nats_url: str,
    juicefs_volume: JuiceFsVolume,
    object_store: ObjectStore,
    chunk_settings: dict[str, str],
) -> AsyncIterator[Rig]:
    """Two agents, mounted, for a test that breaks or measures them."""
    runtimes = _with_keys(RuntimeSet(tmp_path, nats_url, juicefs_volume, chunk_settings), object_store)
    rig = Rig(runtimes, await connect(nats_url, name="test"))
    try:
        await rig.start(0, 1)
        yield rig
    finally:
        await asyncio.to_thread(runtimes.close)
        await rig.bus.close()


@pytest.fixture(scope="session")
def shared_runtimes(
    tmp_path_factory: pytest.TempPathFactory,
    new_volume: Callable[[], JuiceFsVolume],
    object_store: ObjectStore,
) -> Iterator[RuntimeSet]:
    """Two agents with a bus of their own, for all tests that leave them as they were."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    directory = tmp_path_factory.mktemp("shared")
    runtimes = _with_keys(RuntimeSet(directory, server.url, new_volume(), {"CHUNK_FILES": "7"}), object_store)
    try:
        runtimes.start(0)
        runtimes.start(1)
        runtimes.wait_mounted(0, 1)
        yield runtimes
    finally:
        runtimes.close()
        server.stop()


@pytest.fixture
async def shared_rig(shared_runtimes: RuntimeSet) -> AsyncIterator[Rig]:
    """Runs and paths of a test need names of their own."""
    rig = Rig(shared_runtimes, await connect(shared_runtimes.nats_url, name="test"))
    try:
        yield rig
    finally:
        await rig.bus.close()
