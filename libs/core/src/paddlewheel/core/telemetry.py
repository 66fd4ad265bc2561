"""OpenTelemetry set-up: one meter and one tracer per process. Prometheus reads the metrics."""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry import metrics, trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest


@dataclass(frozen=True)
class Telemetry:
    """The meter and tracer of a service."""

    meter: Meter
    tracer: Tracer
    meter_provider: MeterProvider
    tracer_provider: TracerProvider

    def shutdown(self) -> None:
        """Remove this process's metrics from the registry."""
        self.meter_provider.shutdown()
        self.tracer_provider.shutdown()


def set_up(service: str, registry: CollectorRegistry = REGISTRY) -> Telemetry:
    """Install the providers of the process. Libraries use them through the OpenTelemetry API.

    Args:
        service: the `service.name` of metrics and spans.
        registry: the registry that Prometheus scrapes. Tests pass their own.
    """
    resource = Resource.create({SERVICE_NAME: service})
    reader = PrometheusMetricReader(scope_info_enabled=False, registry=registry)
    meters = MeterProvider(metric_readers=[reader], resource=resource)
    tracers = TracerProvider(resource=resource)
    metrics.set_meter_provider(meters)
    trace.set_tracer_provider(tracers)
    return Telemetry(meters.get_meter(service), tracers.get_tracer(service), meters, tracers)


def metrics_text(registry: CollectorRegistry = REGISTRY) -> bytes:
    """The metrics in Prometheus text format."""
    return generate_latest(registry)


def traceparent() -> str:
    """The W3C traceparent header of the current span, or ""."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")
