"""Libraries log to the log of the program, and configure nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from paddlewheel.core.library_logging import LibraryLogger


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """Remove the configuration of structlog during the test, and restore it afterwards."""
    was_configured, config = structlog.is_configured(), structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    if was_configured:
        structlog.configure(**config)


def test_records_go_to_the_standard_library(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        LibraryLogger("paddlewheel.bus").info("bus connected", server="nats://x")
    assert caplog.record_tuples == [
        ("paddlewheel.bus", logging.INFO, 'event="bus connected" server=nats://x')
    ]
    assert capsys.readouterr() == ("", "")
    assert not structlog.is_configured()


def test_an_exception_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        LibraryLogger("paddlewheel.bus").exception("handler failed")
    assert "ValueError: broken" in caplog.text


def test_records_go_to_structlog_where_it_is_configured(caplog: pytest.LogCaptureFixture) -> None:
    log = LibraryLogger("paddlewheel.bus")
    with structlog.testing.capture_logs() as lines:
        log.warning("bus lost", server="nats://x")
    assert lines == [{"event": "bus lost", "server": "nats://x", "log_level": "warning"}]
    assert caplog.records == []
