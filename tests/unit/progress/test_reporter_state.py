"""What the reporter keeps between its requests, without a server."""

from __future__ import annotations

import json

from paddlewheel_progress import Reporter

PATIENCE = 60.0
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

    assert reporter.flush(PATIENCE)
    assert reporter.accepted == [1]
    reporter.report(step=2)
    assert reporter.flush(PATIENCE)
    assert reporter.accepted == [1, 2]
