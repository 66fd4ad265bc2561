"""What data operations are measured on: real agents over FUSE, Redis, an object store, NATS."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.integration.cache_runtime.cache_harness import FINAL, CacheHarness
from tests.integration.cache_runtime.runtimes import RuntimeSet

from paddlewheel.bus import connect
from paddlewheel.bus.streams import RUNS_BUCKET
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.generated.cache_v1 import ClearOperation, RunPhase, RunState
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.contracts.wire import from_json
from paddlewheel.core.tasks import end
from paddlewheel.testkit.nats import NatsServer
from paddlewheel.testkit.storage import JuiceFsVolume, ObjectStore, running_object_store, running_redis

BLOCK = 1 << 16
MOUNT = {"free-space-ratio": "0.01", "backup-meta": "0"}


class Relay:
    """Passes connections on, and counts the bytes of both directions."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.partition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.received = self.sent = 0

    @property
    def endpoint(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await end(*self._open)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_store, to_store = await asyncio.open_connection(self._host, self._port)
        except ConnectionError:
            writer.close()
            return
        upwards = asyncio.create_task(self._copy(reader, to_store))
        try:
            while data := await from_store.read(BLOCK):
                self.received += len(data)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            await end(upwards)
            writer.close()
            to_store.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(BLOCK):
                self.sent += len(data)
                writer.write(data)
                await writer.drain()


@dataclass
class DataStand:
    """Agents of one data set, and the store that its sources are in. `store` is reached through the relay."""

    harness: CacheHarness
    store: ObjectStore
    relay: Relay
    folder: Path
    metaurl: str
    _runs: int = 0

    def mount(self, partition: int = 0) -> Path:
        return self.harness.runtimes.mount_path(partition)

    async def seconds(self, operation: WireModel, partitions: int) -> float:
        """From the request of a run to its end. Raises AssertionError when it does not succeed."""
        self._runs += 1
        run_id = f"run-{self._runs}"
        began = time.monotonic()
        async with asyncio.timeout(600):
            await self.harness.request(run_id, operation, partitions)
            ended = await self._ended(run_id)
        took = time.monotonic() - began
        assert ended.phase is RunPhase.SUCCEEDED, f"{ended.reason}: {ended.message}"
        return took

    async def _ended(self, run_id: str) -> RunState:
        """As soon as it is told: asking for it now and then would count as time of the run."""
        key = RunKey(self.harness.runtimes.uid, run_id).state
        async with aclosing(self.harness.bus.key_value(RUNS_BUCKET).watch(key)) as entries:
            async for entry in entries:
                state = from_json(RunState, entry.value) if entry and entry.value else RunState()
                if state.phase in FINAL and not state.closing:
                    return state
        raise AssertionError("the watch has ended")

    async def empty_caches(self, partitions: int) -> None:
        await self.seconds(ClearOperation(), partitions)


@asynccontextmanager
async def data_stand(
    agents: int,
    mount: Mapping[str, str] | None = None,
    prepare: Callable[[JuiceFsVolume, Path], None] | None = None,
) -> AsyncIterator[DataStand]:
    """Mounted agents.

    Args:
        mount: mount options of the set beside those that small disks need.
        prepare: fills the volume before anything mounts it; gets a folder to work in.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paddlewheel-bench-")))
        redis, direct = stack.enter_context(running_redis()), stack.enter_context(running_object_store())
        server = NatsServer(folder)
        server.start()
        stack.callback(server.stop)
        relay = Relay(direct.endpoint)
        await relay.start()
        store = replace(direct, endpoint=relay.endpoint)
        store.make_bucket("volumes")
        keys = (store.access_key, store.secret_key)
        volume = JuiceFsVolume("bench", "minio", f"http://{store.endpoint}/volumes", f"{redis}/1", *keys)
        if prepare:
            await asyncio.to_thread(prepare, volume, folder)
        options = json.dumps({**MOUNT, **(mount or {})})
        runtimes = RuntimeSet(folder, server.url, volume, {"MOUNT_OPTIONS": options})
        runtimes.write_secret("source", {"access-key": keys[0], "secret-key": keys[1]})
        harness = CacheHarness(runtimes, await connect(server.url, name="bench"))
        try:
            await harness.start(*range(agents))
            yield DataStand(harness, store, relay, folder, volume.metaurl)
        finally:
            await asyncio.to_thread(runtimes.close)
            await harness.bus.close()
            await relay.stop()
