"""The composition root: engine, operations, reconciler, node reports and health endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.context import RunContext
from cache_runtime.domain.chunking import Limits
from cache_runtime.domain.model import Identity
from cache_runtime.engines.ports import Engine, MountListener
from cache_runtime.facts import SOURCE, Facts
from cache_runtime.metrics import Metrics
from cache_runtime.node import CacheLimit, NodeReporter
from cache_runtime.operations import create_operations
from cache_runtime.operations.base import Node
from cache_runtime.reconciler import RunReconciler
from cache_runtime.records import RunStore
from cache_runtime.secret_files import SecretFiles
from cache_runtime.timing import (
    AGENT_AWAY_TIMEOUT_SECONDS,
    FLUSH_CHECK_INTERVAL_SECONDS,
    LONGEST_FLUSH_CHECK_INTERVAL_SECONDS,
    STAGED_BYTES_TIMEOUT_SECONDS,
)
from cache_runtime.tree import Tree
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.bus import connect
from paddlewheel.bus.access import Access
from paddlewheel.bus.ports import Bus
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.staged_writes import UNMOUNT_SECONDS
from paddlewheel.core import http, telemetry
from paddlewheel.core.clock import Clock, SystemClock
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end

log = structlog.get_logger(__name__)

EngineFactory = Callable[[CacheRuntimeSettings, SecretFiles, Clock, MountListener, VolumeRecord], Engine]
"""Wires an engine and starts nothing."""

MISSED = 2.5
"""Reports that an agent must fail to send before it counts as away."""


class App:
    """One runtime pod, wired."""

    def __init__(
        self, settings: CacheRuntimeSettings, create_engine: EngineFactory, bus: Bus, metrics: Metrics
    ) -> None:
        self._settings, self._bus, self._metrics = settings, bus, metrics
        self._clock, self._identity = SystemClock(), identity_of(settings)
        self._facts = Facts(bus, self._identity, self._clock)
        secrets = SecretFiles(settings.secrets_dir, self._clock, settings.secret_wait)
        nodes = bus.key_value(NODES_BUCKET)
        record = VolumeRecord(nodes, settings.set_uid)
        self._engine = create_engine(settings, secrets, self._clock, self._mount_changed, record)
        self._node = NodeReporter(
            nodes,
            self._identity,
            self._engine,
            record,
            settings.cache_dir_list,
            CacheLimit(settings.cache_size_mib << 20, settings.free_ratio),
            self._clock,
            settings.status_interval,
            is_writeback=settings.is_writeback,
        )
        self._runs = self._create_reconciler()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; then end the runs, unmount, and report the node once more."""
        runs = asyncio.create_task(self._runs.run())
        node = asyncio.create_task(self._node.run())
        unmount = asyncio.Event()
        mount = asyncio.create_task(self._engine.mount.run(unmount))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({runs, node, mount, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(runs)
            await self._flush()
            # No report may say that the mount has ended in order before it has.
            await end(node)
            unmount.set()
            await _end_of(mount)
            await self._engine.transfer.close()
            await self._node.report_last()
            await end(stopping)
        for task in (runs, node):
            if not task.cancelled():
                task.result()

    async def _flush(self) -> None:
        """Wait until the mounted client has uploaded what it has acknowledged: at its end it does not."""
        deadline = self._clock.monotonic() + self._settings.flush_wait
        pause = FLUSH_CHECK_INTERVAL_SECONDS
        while self._engine.mount.is_mounted and (staged := await self._staged_bytes()):
            if self._clock.monotonic() >= deadline:
                log.error("writes are left on this node", bytes=staged)
                return
            await self._clock.sleep(pause)
            pause = min(LONGEST_FLUSH_CHECK_INTERVAL_SECONDS, 2 * pause)

    async def _staged_bytes(self) -> int:
        """0 as well when the disk does not answer: there is nothing to wait for."""
        try:
            async with asyncio.timeout(STAGED_BYTES_TIMEOUT_SECONDS):
                return await self._engine.cache.staged_bytes()
        except (Retry, TimeoutError) as error:
            log.error("writes may be left on this node", problem=str(error) or "the disk does not answer")
            return 0

    async def is_mounted(self) -> bool:
        """For readiness."""
        return self._engine.mount.is_mounted

    async def _mount_changed(self, problem: str) -> None:
        self._metrics.mount_changed(mounted=not problem)
        self._node.changed.set()
        await self._facts.mount_changed(problem)

    def _create_reconciler(self) -> RunReconciler:
        settings, engine = self._settings, self._engine
        bucket = self._bus.key_value(RUNS_BUCKET)
        tree = Tree(engine.mount.path, engine.volume.own_inodes, settings.walk_threads)
        context = RunContext(
            identity=self._identity,
            store=RunStore(bucket, settings.set_uid),
            work=self._bus.work,
            nodes=self._bus.key_value(NODES_BUCKET),
            facts=self._facts,
            clock=self._clock,
            metrics=self._metrics,
            mount=engine.mount,
            operations=create_operations(Node(engine, tree, settings.cache_dir_list, self._clock)),
            limits=Limits(bytes=int(settings.chunk_mib * (1 << 20)), files=settings.chunk_files),
            away_after=max(AGENT_AWAY_TIMEOUT_SECONDS, MISSED * settings.status_interval),
        )
        return RunReconciler(bucket, context, self._node.changed.set)


async def _end_of(mount: asyncio.Task[None]) -> None:
    """Wait for it, but not for ever: what hangs in the kernel does not end."""
    await asyncio.wait({mount}, timeout=UNMOUNT_SECONDS)
    if mount.done():
        mount.result()
    else:
        mount.cancel()
        log.error("the mount does not end", timeout=UNMOUNT_SECONDS)


def identity_of(settings: CacheRuntimeSettings) -> Identity:
    """The pod and its data set."""
    return Identity(
        set_namespace=settings.set_namespace,
        set_name=settings.set_name,
        set_uid=settings.set_uid,
        pod=settings.pod_name,
        partition=settings.partition,
        node=settings.node_name,
    )


async def run(settings: CacheRuntimeSettings, create_engine: EngineFactory, stop: asyncio.Event) -> None:
    """Connect and serve until `stop`."""
    measures = telemetry.set_up(SOURCE)
    bus = await connect(Access.of(settings, SOURCE), name=settings.pod_name)
    try:
        app = App(settings, create_engine, bus, Metrics(measures.meter))
        async with http.serve(settings.http_port, {"mounted": app.is_mounted}):
            await app.run(stop)
    finally:
        await bus.close()
        measures.shutdown()
