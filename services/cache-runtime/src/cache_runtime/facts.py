"""What the runtime tells the world: runs and mounts, on the bus."""

from __future__ import annotations

from dataclasses import dataclass

import structlog
from opentelemetry import trace
from pydantic import BaseModel

from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.domain.model import kind_of
from cache_runtime.domain.runs import Progress, eta
from paddlewheel.bus.ports import Publisher
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.cache_v1 import (
    NodeMounted,
    NodeUnmounted,
    RunEnded,
    RunProgressed,
    RunSpec,
    RunStarted,
    RunState,
)
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.telemetry import traceparent

log = structlog.get_logger(__name__)
tracer = trace.get_tracer(__name__)

SOURCE = "cache-runtime"
ANNOUNCE_SPAN = "announce"
PROGRESS_EVERY = 1.0
"""Least seconds between two progress facts of one run; those between are dropped, the next counts for all."""


@dataclass(frozen=True)
class Place:
    """Set and node that this pod serves."""

    set_namespace: str
    set_name: str
    set_uid: str
    pod: str
    partition: int
    node: str

    @staticmethod
    def of(settings: CacheRuntimeSettings) -> Place:
        """From the environment."""
        return Place(
            settings.set_namespace,
            settings.set_name,
            settings.set_uid,
            settings.pod_name,
            settings.partition,
            settings.node_name,
        )


class Facts:
    """Builds and publishes the facts of one data set."""

    def __init__(self, publisher: Publisher, place: Place, clock: Clock) -> None:
        self._publisher, self._place, self._clock = publisher, place, clock
        self._progressed: dict[str, float] = {}

    async def run_started(self, spec: RunSpec, state: RunState) -> None:
        """Raises Retry."""
        fact = RunStarted(**_run(spec), master=state.master)
        await self._publish(fact, f"{spec.set_uid}/{spec.run_id}/started/{state.term}")

    async def run_progressed(self, spec: RunSpec, state: RunState, sums: Progress, tick: int) -> None:
        """Lossy: dropped when it comes too soon after the last, or while the bus is away."""
        if not self._may_progress(spec.run_id):
            return
        elapsed = (self._clock.now() - state.started_at).total_seconds() if state.started_at else 0.0
        fact = RunProgressed(
            **_run(spec),
            files_done=sums.files,
            bytes_done=sums.bytes,
            listed=state.listed,
            files_total=state.files_total,
            bytes_total=state.bytes_total,
            eta_seconds=eta(sums, state, elapsed),
        )
        try:
            await self._publish(fact, f"{spec.set_uid}/{spec.run_id}/progressed/{state.term}-{tick}")
        except Retry as error:
            log.debug("progress not published", run=spec.run_id, problem=str(error))

    def _may_progress(self, run_id: str) -> bool:
        """Also forgets runs that have been quiet for long enough to be told of anyway."""
        now = self._clock.monotonic()
        self._progressed = {run: at for run, at in self._progressed.items() if now - at < PROGRESS_EVERY}
        if run_id in self._progressed:
            return False
        self._progressed[run_id] = now
        return True

    async def run_ended(self, spec: RunSpec, state: RunState) -> None:
        """Raises Retry."""
        fact = RunEnded(
            **_run(spec),
            phase=state.phase,
            files=state.files_done,
            bytes=state.bytes_done,
            cached_percent=state.cached_percent,
            reason=state.reason,
            message=state.message,
        )
        await self._publish(fact, f"{spec.set_uid}/{spec.run_id}/ended/0")

    async def mount_changed(self, problem: str) -> None:
        """ "" = mounted; anything else says why not. Lossy: NodeStatus carries the truth."""
        place = self._place
        common = {"set_namespace": place.set_namespace, "set_name": place.set_name, "set_uid": place.set_uid}
        where = {"partition": place.partition, "node": place.node}
        fact: BaseModel = NodeMounted.model_validate({**common, **where})
        if problem:
            fact = NodeUnmounted.model_validate({**common, **where, "message": problem})
        word = "unmounted" if problem else "mounted"
        moment = int(self._clock.now().timestamp() * 1000)
        try:
            await self._publish(fact, f"{place.set_uid}/{place.partition}/{word}/{moment}")
        except Retry as error:
            log.warning("mount fact not published", fact=word, problem=str(error))

    async def _publish(self, fact: BaseModel, id_: str) -> None:
        with tracer.start_as_current_span(ANNOUNCE_SPAN):
            event = self._event(fact, id_)
            try:
                await self._publisher.publish(event)
            except Permanent as error:
                log.error("fact refused by the bus", id=id_, problem=error.message)

    def _event(self, fact: BaseModel, id_: str) -> Event:
        return make_event(
            fact,
            id=id_,
            source=SOURCE,
            namespace=self._place.set_namespace,
            uid=self._place.set_uid,
            time=self._clock.now(),
            traceparent=traceparent(),
        )


def _run(spec: RunSpec) -> dict[str, str]:
    kind = kind_of(spec)
    return {
        "set_namespace": spec.set_namespace,
        "set_name": spec.set_name,
        "set_uid": spec.set_uid,
        "run_id": spec.run_id,
        "operation": kind.value if kind else "",
    }
