"""Settings and metrics of job-controller."""

from __future__ import annotations

import pytest

from job_controller.config import Settings
from job_controller.core.model import Options
from paddlewheel.core.errors import Permanent
from paddlewheel.core.settings import load_settings


def test_defaults_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().options == Options()
    monkeypatch.setenv("JOB_CONTROLLER_GATE_IMAGE", "example/gate:1")
    monkeypatch.setenv("JOB_CONTROLLER_GATE_URL", "http://gate:8080")
    monkeypatch.setenv("JOB_CONTROLLER_PORT_RANGE_END", "50000")
    options = load_settings(Settings).options
    assert (options.gate_image, options.port_range) == ("example/gate:1", (35000, 50000))


@pytest.mark.parametrize(("name", "value"), [("IMAGE", "example/gate:1"), ("URL", "http://gate:8080")])
def test_half_a_gate_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"JOB_CONTROLLER_GATE_{name}", value)
    with pytest.raises(Permanent, match="set gate_image and gate_url, or neither"):
        load_settings(Settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [("WORKERS", "0"), ("PORT_RANGE_END", "35001"), ("GATE_RECHECK", "0"), ("REPLICAS_SHARE", "maybe")],
)
def test_a_wrong_value_names_itself(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"JOB_CONTROLLER_{name}", value)
    with pytest.raises(Permanent, match=r"(?i)port_range_end|JOB_CONTROLLER_" + name):
        load_settings(Settings)
