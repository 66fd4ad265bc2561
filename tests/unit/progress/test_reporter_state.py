"""What the reporter keeps between its requests, without a server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from paddlewheel_progress import Reporter, module

FLUSH_TIMEOUT_SECONDS = 10.0
"""Seconds until a test fails."""


class Answered(Reporter):
    """Gets these answers, and 204 after them."""

    def __init__(self, *statuses: int) -> None:
        super().__init__("http://127.0.0.1:1", "", interval=0.01)
        self.statuses = list(statuses)
        self.accepted: list[int] = []

    def _post(self, body: bytes) -> tuple[int, str]:
        status = self.statuses.pop(0) if self.statuses else 204
        if status == 204:
            self.accepted.append(json.loads(body)["step"])
        return status, ""


def test_what_could_not_be_sent_is_sent_again_without_another_report() -> None:
    reporter = Answered(503)

    reporter.report(step=1)

    assert reporter.flush(FLUSH_TIMEOUT_SECONDS)
    assert reporter.accepted == [1]
    reporter.report(step=2)
    assert reporter.flush(FLUSH_TIMEOUT_SECONDS)
    assert reporter.accepted == [1, 2]


class Interrupted(float):
    """A number during whose reading a signal arrives."""

    handler: Callable[[], object]

    def __float__(self) -> float:
        self.handler()
        return 0.5


def returns(work: Callable[[], object]) -> bool:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(FLUSH_TIMEOUT_SECONDS)
    return not thread.is_alive()


def test_a_signal_handler_that_reports_during_a_report_does_not_hold_up_the_training() -> None:
    reporter = Answered()
    reporter.report(step=0)
    assert reporter.flush(FLUSH_TIMEOUT_SECONDS)
    loss = Interrupted()

    def handler() -> None:
        reporter.report(step=2)
        assert not reporter.flush(FLUSH_TIMEOUT_SECONDS)

    loss.handler = handler
    assert returns(lambda: reporter.report(step=1, loss=loss))

    assert reporter.flush(FLUSH_TIMEOUT_SECONDS)
    assert reporter.accepted == [0, 1]
    reporter.report(step=3)
    assert reporter.flush(FLUSH_TIMEOUT_SECONDS)
    assert reporter.accepted == [0, 1, 3]


def test_a_signal_handler_that_reports_during_the_first_report_does_not_hold_up_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def interrupted(_: object) -> None:
        calls.append("made")
        if len(calls) == 1:
            module.report(step=2)

    monkeypatch.setattr(module, "_made_in", 0)
    monkeypatch.setattr(module, "from_environment", interrupted)
    assert returns(lambda: module.report(step=1))
