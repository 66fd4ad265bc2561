"""The size of the chart: objects, pods and values."""

from __future__ import annotations

import json

import yaml

from paddlewheel.docs.values import leaves
from paddlewheel.testkit.charts import CHARTS, pod_specs, render

MOST_VALUES = 80


def test_the_default_chart_is_small() -> None:
    manifests = render("paddlewheel")
    kinds = [m["kind"] for m in manifests]

    assert kinds.count("Secret") <= 6
    assert len(dict(pod_specs(manifests))) <= 7
    # Each service has its own account and rights, which take half of them.
    assert len(manifests) <= 63, sorted(f"{m['kind']}/{m['metadata']['name']}" for m in manifests)


def test_no_more_values_are_documented_than_somebody_reads() -> None:
    chart = CHARTS / "paddlewheel"
    schema = json.loads((chart / "values.schema.json").read_text())
    defaults = yaml.safe_load((chart / "values.yaml").read_text())

    assert len(leaves(schema, defaults)) <= MOST_VALUES
