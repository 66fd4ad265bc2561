"""The composition root: health endpoints, then the model, then its requests; drained on SIGTERM."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress

import structlog
from opentelemetry.metrics import Meter

from paddle_runtime.batcher import Batcher, BatchLimits
from paddle_runtime.budget import Budget
from paddle_runtime.config import PaddleRuntimeSettings
from paddle_runtime.domain.model import Identity, Signature
from paddle_runtime.engine import PaddleProcess
from paddle_runtime.handlers import Handlers, RequestLimits, ServedModel
from paddle_runtime.lifecycle import Lifecycle, Phase
from paddle_runtime.metrics import Metrics
from paddle_runtime.model_files import ModelOnDisk, obtain
from paddle_runtime.ports import EngineDied
from paddlewheel.core import http, telemetry
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import PaddlewheelError
from paddlewheel.core.tasks import end

SOURCE = "paddle-runtime"

log = structlog.get_logger(__name__)


class App:
    """One replica, wired. `stack` keeps the port for requests open until the replica ends."""

    def __init__(
        self,
        settings: PaddleRuntimeSettings,
        lifecycle: Lifecycle,
        meter: Meter,
        clock: SystemClock,
        stack: AsyncExitStack,
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._budget = Budget(settings.max_pending)
        self._metrics = Metrics(meter, lambda: self._queued, lambda: self._budget.held)
        self._clock = clock
        self._stack = stack
        self._engines = [PaddleProcess(settings) for _ in range(settings.workers)]
        self._on_disk: ModelOnDisk | None = None
        self._batcher: Batcher | None = None

    @property
    def _queued(self) -> int:
        return self._batcher.queued if self._batcher else 0

    async def run(self, stop: asyncio.Event) -> None:
        """Load the model and serve until `stop`. Raises ModelFault, Retry, EngineDied."""
        stopping = asyncio.create_task(stop.wait())
        serving = asyncio.create_task(self._serve())
        try:
            await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                await self._drain(serving)
        finally:
            await end(serving, stopping)
            if self._batcher:
                await self._batcher.stop()
            await asyncio.gather(*(engine.stop() for engine in self._engines))
        if not serving.cancelled():
            serving.result()

    async def _serve(self) -> None:
        """Serve until an engine dies; the others then finish the requests that wait."""
        signature = await self._start()
        self._batcher = batcher = self._new_batcher(signature)
        batcher.start()
        await self._open(signature, batcher)
        self._lifecycle.enter(Phase.SERVING)
        log.info("model is served", name=self._settings.model_name, joins=signature.joins)
        died = EngineDied(await self._cause_of_death())
        self._report(died)
        await self._give_time(batcher.drain())
        raise died

    async def _open(self, signature: Signature, batcher: Batcher) -> None:
        """Listen for requests only now: probes of TCP and of HTTP then have the same meaning."""
        chosen = self._settings
        identity = Identity(chosen.model_name, chosen.model_version)
        limits = RequestLimits(chosen.max_body, chosen.max_json, chosen.body_timeout, chosen.answer_timeout)
        model = ServedModel(identity, signature, batcher)
        handlers = Handlers(model, self._lifecycle, limits, self._budget, self._metrics, self._clock)
        clients = http.Limits(chosen.max_connections, chosen.idle_timeout, chosen.answer_timeout)
        await self._stack.enter_async_context(
            http.serve(chosen.http_port, None, handlers.routes, limits=clients)
        )

    async def _cause_of_death(self) -> str:
        """Wait until an engine dies."""
        dying = [asyncio.ensure_future(engine.wait_died()) for engine in self._engines]
        try:
            done, _ = await asyncio.wait(dying, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(*dying)
        return done.pop().result()

    async def _start(self) -> Signature:
        """Paddle is imported while the model is fetched."""
        try:
            return await self._load()
        except PaddlewheelError as error:
            self._report(error)
            await self._clock.sleep(self._settings.fault_delay)
            raise

    async def _load(self) -> Signature:
        began = self._clock.monotonic()
        preparing = [asyncio.create_task(engine.prepare()) for engine in self._engines]
        try:
            self._on_disk = on_disk = await obtain(self._settings, self._lifecycle, self._clock)
            fetched = self._phase_over("download", began, Phase.LOADING)
            devices = await asyncio.gather(*preparing)
        finally:
            await end(*preparing)
        log.info("engine prepared", device=devices[0])
        await asyncio.gather(*(engine.load(on_disk.directory, on_disk.files) for engine in self._engines))
        loaded = self._phase_over("load", fetched, Phase.WARMING_UP)
        warmed = (await asyncio.gather(*(engine.warm_up() for engine in self._engines)))[0]
        self._phase_over("warmup", loaded, Phase.WARMING_UP)
        if warmed.faults:
            log.warning("model runs with less of oneDNN", onednn=warmed.onednn, faults=warmed.faults)
        return warmed.signature

    def _phase_over(self, phase: str, began: float, following: Phase) -> float:
        now = self._clock.monotonic()
        self._metrics.started(phase, now - began)
        self._lifecycle.enter(following)
        return now

    def _new_batcher(self, signature: Signature) -> Batcher:
        chosen = self._settings
        limits = BatchLimits(chosen.max_batch_rows, chosen.max_queue)
        return Batcher(signature, self._engines, limits, self._metrics, self._clock)

    def _report(self, error: PaddlewheelError) -> None:
        """Report the cause in /readyz, and in the file that the kubelet reads."""
        self._lifecycle.enter(Phase.FAILED, str(error))
        with suppress(OSError):
            if self._settings.termination_log.exists():
                self._settings.termination_log.write_text(str(error)[:4000])

    async def _drain(self, serving: asyncio.Task[None]) -> None:
        """Unready at once; requests are accepted until the routes know, and then get time to end."""
        if self._lifecycle.phase is not Phase.SERVING:
            return
        self._lifecycle.enter(Phase.DRAINING)
        log.info("draining")
        await asyncio.wait({serving}, timeout=self._settings.drain_delay)
        await self._give_time(self._lifecycle.wait_idle())

    async def _give_time(self, ending: Awaitable[None]) -> None:
        """Let requests end for at most `drain_timeout`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout):
                await ending


async def run(settings: PaddleRuntimeSettings, stop: asyncio.Event) -> None:
    """Serve until `stop`."""
    lifecycle = Lifecycle()
    measures = telemetry.set_up(SOURCE)
    async with AsyncExitStack() as stack:
        stack.callback(measures.shutdown)
        checks = {"model": lifecycle.is_ready}
        await stack.enter_async_context(http.serve(settings.own_port, checks))
        await App(settings, lifecycle, measures.meter, SystemClock(), stack).run(stop)
