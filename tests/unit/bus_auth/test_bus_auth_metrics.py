"""The metrics of bus-auth, and the alert rules of the documentation."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from bus_auth.metrics import NAMES, Metrics
from paddlewheel.bus.callout.certificates import make_authority
from paddlewheel.bus.instruments import METRIC_NAMES
from paddlewheel.core import telemetry
from paddlewheel.testkit.charts import REPOSITORY
from paddlewheel.testkit.clock import ManualClock
from trigger_controller.metrics import MARKS_FORGOTTEN

END = "paddlewheel_bus_auth_authority_end_seconds"


def test_the_end_of_the_authority_is_measured_as_its_file_has_it(tmp_path: Path) -> None:
    now = ManualClock().now()
    file, registry = tmp_path / "ca.crt", CollectorRegistry()
    measures = telemetry.set_up("test", registry)
    try:
        Metrics(measures.meter, file)
        assert registry.get_sample_value(END) is None
        file.write_bytes(b"unreadable")
        assert registry.get_sample_value(END) is None
        # A file may have several: the first that ends counts.
        both = [make_authority(now - timedelta(days=days))["tls.crt"] for days in (0, 100)]
        file.write_bytes(b"".join(both))
        assert (
            registry.get_sample_value(END) == (now + timedelta(days=3550)).replace(microsecond=0).timestamp()
        )
    finally:
        measures.shutdown()


def test_the_alert_rules_name_metrics_that_exist() -> None:
    page = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
    [rules] = [each for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "PrometheusRule" in each]
    known = {name.replace(".", "_") for name in (*METRIC_NAMES, *NAMES, MARKS_FORGOTTEN)}
    expressions = [rule["expr"] for rule in yaml.safe_load(rules)["spec"]["groups"][0]["rules"]]
    named = {name for each in expressions for name in re.findall(r"paddlewheel_\w+", each)}
    assert {re.sub(r"_(total|seconds)$", "", name) for name in named} <= known
    assert END in named
