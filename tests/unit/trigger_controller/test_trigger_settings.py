"""Settings and metric names."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from paddlewheel.contracts.crds import TriggerStatus
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent
from paddlewheel.core.settings import load_settings
from paddlewheel.operator.domain.plan import Applied, ChildRef
from trigger_controller.config import Settings
from trigger_controller.metrics import Metrics
from trigger_controller.watch import SUBSCRIPTIONS


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIGGER_CONTROLLER_WEBHOOK_TOKENS_DIR", "/etc/tokens")
    monkeypatch.setenv("TRIGGER_CONTROLLER_RESYNC", "7")
    settings = load_settings(Settings)
    assert (str(settings.webhook_tokens_dir), settings.resync) == ("/etc/tokens", 7)
    monkeypatch.setenv("TRIGGER_CONTROLLER_RESYNC", "0")
    with pytest.raises(Permanent, match="TRIGGER_CONTROLLER_RESYNC"):
        load_settings(Settings)


def test_triggers_cannot_be_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event for a trigger of another replica would wait in this one for good."""
    assert load_settings(Settings).replicas_share is False
    monkeypatch.setenv("TRIGGER_CONTROLLER_REPLICAS_SHARE", "true")
    with pytest.raises(Permanent, match="TRIGGER_CONTROLLER_REPLICAS_SHARE"):
        load_settings(Settings)


def test_durables_are_fixed() -> None:
    assert [(s.durable, s.stream) for s in SUBSCRIPTIONS] == [
        ("trigger-controller-jobs", "PW_JOBS"),
        ("trigger-controller-datasets", "PW_DATASETS"),
        ("trigger-controller-sources", "PW_SOURCES"),
    ]


def test_every_metric_is_emitted() -> None:
    reader = InMemoryMetricReader()
    metrics = Metrics(MeterProvider((reader,)).get_meter("test"))
    status = TriggerStatus(events=3, skipped=1, lost=1)
    metrics.recorded(TriggerStatus(), status, is_suspended=True)
    child = ChildRef("SampleJob", Key("default", "a"), "u")
    metrics.created(Applied(("SampleJob",), children=(child,)))
    metrics.notified("stored")
    metrics.forgotten(1)
    metrics.fact("TriggerFired", "published")
    data: Any = reader.get_metrics_data()
    found = {m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert found == {
        "paddlewheel.triggers.creations",
        "paddlewheel.triggers.events",
        "paddlewheel.triggers.events.lost",
        "paddlewheel.triggers.events.skipped",
        "paddlewheel.triggers.facts",
        "paddlewheel.triggers.marks.forgotten",
        "paddlewheel.triggers.notifications",
    }
