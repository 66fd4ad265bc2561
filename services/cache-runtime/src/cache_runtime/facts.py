"""The facts that this runtime publishes: about runs, and about its mount."""

from __future__ import annotations

import structlog
from opentelemetry import trace
from pydantic import BaseModel

from cache_runtime.domain.model import Identity
from cache_runtime.domain.runs import Progress, eta
from cache_runtime.timing import PROGRESS_INTERVAL_SECONDS
from paddlewheel.bus.ports import Publisher
from paddlewheel.contracts.crds.operations import member_of
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.cache_v1 import (
    NodeMounted,
    NodeUnmounted,
    RunEnded,
    RunSpec,
    RunStarted,
    RunState,
)
from paddlewheel.contracts.generated.cacheprogress_v1 import RunProgressed
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.core.telemetry import traceparent

log = structlog.get_logger(__name__)
tracer = trace.get_tracer(__name__)

SOURCE = "cache-runtime"
ANNOUNCE_SPAN = "announce"
MESSAGE_MAX = 500
"""Characters of a message: the stream takes 4 KiB a fact, so that no set fills it."""


class Facts:
    """Builds and publishes the facts of one data set."""

    def __init__(self, publisher: Publisher, identity: Identity, clock: Clock) -> None:
        self._publisher, self._identity, self._clock = publisher, identity, clock
        self._progressed: dict[str, float] = {}

    async def run_started(self, spec: RunSpec, state: RunState) -> None:
        """Raises Retry."""
        fact = RunStarted(**_run(spec), master=state.master)
        await self._publish(fact, f"{spec.set_uid}/{spec.run_id}/started/{state.term}")

    async def run_progressed(self, spec: RunSpec, state: RunState, sums: Progress, tick: int) -> None:
        """Lossy: dropped when the last one is too recent, or while the bus is unreachable."""
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
        """Also drops the entries of runs that may publish again."""
        now = self._clock.monotonic()
        self._progressed = {
            run: at for run, at in self._progressed.items() if now - at < PROGRESS_INTERVAL_SECONDS
        }
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
            message=state.message[:MESSAGE_MAX],
        )
        await self._publish(fact, f"{spec.set_uid}/{spec.run_id}/ended/0")

    async def mount_changed(self, problem: str) -> None:
        """Publish that the mount came or went.

        Args:
            problem: why it is not mounted; "" = it is. Lossy: NodeStatus has the truth.
        """
        me = self._identity
        node = {
            "set_namespace": me.set_namespace,
            "set_name": me.set_name,
            "set_uid": me.set_uid,
            "partition": me.partition,
            "node": me.node,
        }
        fact: BaseModel = NodeMounted.model_validate(node)
        if problem:
            fact = NodeUnmounted.model_validate({**node, "message": problem[:MESSAGE_MAX]})
        word = "unmounted" if problem else "mounted"
        moment = int(self._clock.now().timestamp() * 1000)
        try:
            await self._publish(fact, f"{me.set_uid}/{me.partition}/{word}/{moment}")
        except Retry as error:
            log.warning("mount fact not published", fact=word, problem=str(error))

    async def _publish(self, fact: BaseModel, id_: str) -> None:
        with tracer.start_as_current_span(ANNOUNCE_SPAN):
            event = self._event(fact, id_)
            try:
                await self._publisher.publish(event)
            except Permanent as error:
                log.error("fact rejected by the bus", id=id_, problem=error.message)

    def _event(self, fact: BaseModel, id_: str) -> Event:
        return make_event(
            fact,
            id=id_,
            source=SOURCE,
            namespace=self._identity.set_namespace,
            uid=self._identity.set_uid,
            time=self._clock.now(),
            traceparent=traceparent(),
        )


def _run(spec: RunSpec) -> dict[str, str]:
    return {
        "set_namespace": spec.set_namespace,
        "set_name": spec.set_name,
        "set_uid": spec.set_uid,
        "run_id": spec.run_id,
        "operation": member_of(spec),
    }
