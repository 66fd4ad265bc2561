"""The only place where adapters, reconciler and health endpoints meet."""

from __future__ import annotations

import asyncio

import structlog

from cache_runtime.adapters.client import JuiceFs
from cache_runtime.adapters.control_file import ControlFile
from cache_runtime.adapters.copy import CopyWorker
from cache_runtime.adapters.listers import RemoveLister, SourceLister, WarmupLister
from cache_runtime.adapters.mount import MountPlan, MountSupervisor
from cache_runtime.adapters.secret_files import SecretFiles
from cache_runtime.adapters.workers import ClearWorker, RemoveWorker, WarmupWorker
from cache_runtime.agent import AgentTools
from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.domain.chunking import Limits
from cache_runtime.domain.model import Kind
from cache_runtime.facts import SOURCE, Facts, Place
from cache_runtime.master import MasterTools
from cache_runtime.metrics import Metrics
from cache_runtime.node import NodeReporter
from cache_runtime.ports import ChunkWorker, Lister
from cache_runtime.reconciler import RunReconciler
from cache_runtime.records import RunStore
from paddlewheel.bus import connect
from paddlewheel.bus.access import Access
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET
from paddlewheel.core import http, telemetry
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)


class App:
    """One runtime pod, wired."""

    def __init__(self, settings: CacheRuntimeSettings, bus: Bus, metrics: Metrics) -> None:
        self._settings, self._bus, self._metrics = settings, bus, metrics
        self._clock, self._place = SystemClock(), Place.of(settings)
        self._client = JuiceFs(settings.juicefs)
        self._secrets = SecretFiles(settings.secrets_dir, self._clock, settings.secret_wait)
        self._facts = Facts(bus, self._place, self._clock)
        self._control = ControlFile(settings.mount_path)
        self.mount = self._make_mount()
        nodes = bus.key_value(NODES_BUCKET)
        self._node = NodeReporter(
            nodes,
            self._place,
            self.mount,
            self._control,
            settings.cache_dir_list,
            self._clock,
            settings.status_interval,
        )
        self._runs = self._make_reconciler()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`: first the runs let go, then the file system is unmounted, then the node says so."""
        runs = asyncio.create_task(self._runs.run())
        node = asyncio.create_task(self._node.run())
        unmount = asyncio.Event()
        mount = asyncio.create_task(self.mount.run(unmount))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({runs, node, mount, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(runs)
            unmount.set()
            await mount
            await self._node.report()
            await end(node, stopping)
        for task in (runs, node):
            if not task.cancelled():
                task.result()

    async def is_mounted(self) -> bool:
        """For readiness."""
        return self.mount.is_mounted

    def _make_mount(self) -> MountSupervisor:
        s = self._settings
        plan = MountPlan(s.mount_path, s.cache_dir_list, s.cache_size_mib, s.mount_options)
        return MountSupervisor(plan, self._client, self._secrets, self._clock, self._mount_changed)

    async def _mount_changed(self, problem: str) -> None:
        self._metrics.mount_changed(mounted=not problem)
        self._node.changed.set()
        await self._facts.mount_changed(problem)

    def _make_reconciler(self) -> RunReconciler:
        s, bucket = self._settings, self._bus.key_value(RUNS_BUCKET)
        store = RunStore(bucket, s.set_uid)
        copy = self._make_copy_worker()
        listers: dict[Kind, Lister] = {
            Kind.SYNC: SourceLister(self._client, self._secrets),
            Kind.WARMUP: WarmupLister(s.mount_path, self.mount, s.walk_threads),
            Kind.REMOVE: RemoveLister(),
        }
        workers: dict[Kind, ChunkWorker] = {
            Kind.SYNC: copy,
            Kind.WARMUP: WarmupWorker(s.mount_path, self._control, self.mount, self._clock),
            Kind.REMOVE: RemoveWorker(s.mount_path, self._client, self.mount),
            Kind.CLEAR: ClearWorker(self.mount, self._control, s.cache_dir_list),
        }
        limits = Limits(bytes=int(s.chunk_mib * (1 << 20)), files=s.chunk_files)
        work, clock, metrics = self._bus.work, self._clock, self._metrics
        master = MasterTools(s.pod_name, store, work, self._facts, clock, metrics, limits, listers, copy)
        agent = AgentTools(self._place, store, work, clock, metrics, workers, s.ack_wait)
        return RunReconciler(bucket, store, master, agent, self._node.changed.set)

    def _make_copy_worker(self) -> CopyWorker:
        s = self._settings
        sub_dir = s.mount_options.get("sub-dir", s.mount_options.get("subdir", ""))
        return CopyWorker(s.mount_path, sub_dir, self._client, self._secrets, self.mount, self._clock)


async def run(settings: CacheRuntimeSettings, stop: asyncio.Event) -> None:
    """Connect and serve until `stop`."""
    measures = telemetry.set_up(SOURCE)
    bus = await connect(Access.of(settings, SOURCE), name=settings.pod_name)
    try:
        app = App(settings, bus, Metrics(measures.meter))
        async with http.serve(settings.http_port, {"mounted": app.is_mounted}):
            await app.run(stop)
    finally:
        await bus.close()
        measures.shutdown()
