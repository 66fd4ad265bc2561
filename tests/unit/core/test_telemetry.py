"""Logs are JSON with fields and trace ids; metrics are in Prometheus text format."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from paddlewheel.core import logging as json_logging
from paddlewheel.core import telemetry


@pytest.fixture
def plain_logging() -> Iterator[None]:
    """Restore the logging configuration after the test."""
    root, config = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**config)


@pytest.mark.usefixtures("plain_logging")
def test_records_are_one_json_line_with_fields(capsys: pytest.CaptureFixture[str]) -> None:
    json_logging.set_up("sample", "info")
    structlog.get_logger().info("pods created", count=3)
    structlog.get_logger().debug("not shown")
    logging.getLogger("library").warning("old %s", "style")
    ours, theirs = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["count"], ours["level"]) == ("pods created", 3, "info")
    assert ours["service"] == "sample"
    assert (theirs["event"], theirs["level"]) == ("old style", "warning")


@pytest.mark.usefixtures("plain_logging")
def test_an_exception_is_logged_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    json_logging.set_up("sample")
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        structlog.get_logger().exception("failed")
    record = json.loads(capsys.readouterr().err)
    assert record["exception"][0]["exc_type"] == "ZeroDivisionError"


@pytest.mark.usefixtures("plain_logging")
def test_a_traceback_has_no_values_of_variables(capsys: pytest.CaptureFixture[str]) -> None:
    """Values of variables may be secret keys."""
    json_logging.set_up("sample")
    key = "kept-" + "secret"
    try:
        raise ZeroDivisionError(f"with a key of {len(key)} characters")
    except ZeroDivisionError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed there")
    printed = capsys.readouterr().err
    assert "with a key of 11 characters" in printed
    assert key not in printed


@pytest.mark.usefixtures("plain_logging")
def test_records_carry_the_current_trace(capsys: pytest.CaptureFixture[str]) -> None:
    json_logging.set_up("sample")
    with TracerProvider().get_tracer("test").start_as_current_span("step"):
        structlog.get_logger().info("inside")
        header = telemetry.traceparent()
    record = json.loads(capsys.readouterr().err)
    assert header.split("-")[1] == record["trace_id"]
    assert telemetry.traceparent() == ""


def test_metrics_are_in_prometheus_text_format() -> None:
    registry = CollectorRegistry()
    measured = telemetry.set_up("sample", registry)
    measured.meter.create_counter("paddlewheel.things").add(2, {"kind": "a"})
    assert 'paddlewheel_things_total{kind="a"} 2.0' in telemetry.metrics_text(registry).decode()
    measured.shutdown()
    assert b"things" not in telemetry.metrics_text(registry)
