"""Every metric and span of the bus; label values are closed sets, never object names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from opentelemetry import metrics, trace
from opentelemetry.metrics import Meter, Observation
from opentelemetry.trace import SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from paddlewheel.bus.admin.mirrors import MirrorStatus
from paddlewheel.bus.streams import BUS_FULL
from paddlewheel.core.errors import Permanent, Retry

PUBLISHED = "paddlewheel.bus.published"
SETTLED = "paddlewheel.bus.settled"
STOPPED = "paddlewheel.bus.stopped"
HANDLING = "paddlewheel.bus.handling"
MIRROR_LAG = "paddlewheel.bus.mirror.lag"
MIRROR_BROKEN = "paddlewheel.bus.mirror.broken"
DURABLE_LAG = "paddlewheel.bus.durable.lag"
CONFIG_LOADED = "paddlewheel.bus.server.config.loaded"
METRIC_NAMES = (PUBLISHED, SETTLED, STOPPED, HANDLING, MIRROR_LAG, MIRROR_BROKEN, DURABLE_LAG, CONFIG_LOADED)

HANDLE = "paddlewheel.bus.handle"
SPAN_NAMES = (HANDLE,)

Ending = Literal["acked", "retried", "parked", "unknown"]


class Instruments:
    """The counters, gauges and spans of the bus."""

    def __init__(
        self,
        meter: Meter | None = None,
        tracer: Tracer | None = None,
        longest: Callable[[], Mapping[str, float]] = dict,
        mirrors: Callable[[], Sequence[MirrorStatus]] = tuple,
        lags: Callable[[], Mapping[str, int]] = dict,
        loaded: Callable[[], Mapping[str, bool]] = dict,
    ) -> None:
        """Args:
        longest: seconds for which the oldest handler of each durable has run.
        mirrors: teams' copies of streams.
        lags: messages that each durable has not acknowledged.
        loaded: whether each server has loaded the configuration of the chart.
        """
        meter = meter or metrics.get_meter(__name__)
        self._tracer = tracer or trace.get_tracer(__name__)
        self._published = meter.create_counter(PUBLISHED, description="events by stream and outcome")
        self._settled = meter.create_counter(SETTLED, description="messages by durable and ending")
        self._stopped = meter.create_up_down_counter(
            STOPPED, description="consumers that wait for their dead letters to be replayed or dropped"
        )
        meter.create_observable_gauge(
            HANDLING,
            callbacks=[
                lambda _: [Observation(seconds, {"durable": name}) for name, seconds in longest().items()]
            ],
            unit="s",
            description="age of the oldest running handler, by durable",
        )
        meter.create_observable_gauge(
            DURABLE_LAG,
            callbacks=[lambda _: [Observation(lag, {"durable": name}) for name, lag in lags().items()]],
            description="messages that a durable has not acknowledged",
        )
        meter.create_observable_gauge(
            MIRROR_LAG,
            callbacks=[lambda _: [Observation(each.lag, _place(each)) for each in mirrors()]],
            description="facts that have not arrived in a team's copy of a stream",
        )
        meter.create_observable_gauge(
            MIRROR_BROKEN,
            callbacks=[lambda _: [Observation(int(bool(each.trouble)), _place(each)) for each in mirrors()]],
            description="1 when no facts arrive in a team's copy of a stream",
        )

        meter.create_observable_gauge(
            CONFIG_LOADED,
            callbacks=[
                lambda _: [Observation(int(is_so), {"server": name}) for name, is_so in loaded().items()]
            ],
            description="0 when a server has not loaded the configuration of the chart",
        )

    @contextmanager
    def publishing(self, stream: str) -> Iterator[None]:
        """Count one event as stored, full (the stream is full), failed (may be retried) or refused."""
        outcome = "stored"
        try:
            yield
        except Retry as error:
            outcome = "full" if error.reason == BUS_FULL else "failed"
            raise
        except Permanent:
            outcome = "refused"
            raise
        finally:
            self._published.add(1, {"stream": stream, "outcome": outcome})

    def settled(self, durable: str, ending: Ending) -> None:
        """Count one attempt at one message that ended this way."""
        self._settled.add(1, {"durable": durable, "ending": ending})

    @contextmanager
    def stopped(self, durable: str) -> Iterator[None]:
        """Count a consumer as stopped because of its dead letters, within the block."""
        self._stopped.add(1, {"durable": durable})
        try:
            yield
        finally:
            self._stopped.add(-1, {"durable": durable})

    @contextmanager
    def handling(self, durable: str, traceparent: str) -> Iterator[None]:
        """The span of a handler, in the trace of the publisher."""
        parent = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
        attributes = {"durable": durable}
        with self._tracer.start_as_current_span(
            HANDLE, context=parent, kind=SpanKind.CONSUMER, attributes=attributes
        ):
            yield


def _place(mirror: MirrorStatus) -> dict[str, str]:
    return {"team": mirror.team, "stream": mirror.stream}
