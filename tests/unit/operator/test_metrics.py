"""Every metric of a controller is emitted with its name."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData

from paddlewheel.operator.metrics import ControllerMetrics


def test_every_metric_is_emitted() -> None:
    reader = InMemoryMetricReader()
    metrics = ControllerMetrics("jobs", MeterProvider([reader]).get_meter("test"))
    metrics.fact("JobRunning", "published")
    metrics.created(["Pod", "Pod", "ConfigMap"])
    data = reader.get_metrics_data()
    assert isinstance(data, MetricsData)
    found = {
        (metric.name, tuple(point.attributes.values()), point.value)  # type: ignore[union-attr]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert found == {
        ("paddlewheel.jobs.facts", ("JobRunning", "published"), 1),
        ("paddlewheel.jobs.children", ("Pod",), 2),
        ("paddlewheel.jobs.children", ("ConfigMap",), 1),
    }
