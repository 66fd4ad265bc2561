"""Logs of tests with plain tracebacks.

structlog's default renders a traceback with every local variable as soon as rich is installed. That takes the
better part of a second, in which the event loop is blocked.
"""

from __future__ import annotations

import structlog
from structlog.dev import ConsoleRenderer, plain_traceback


def pytest_configure() -> None:
    *before, _ = structlog.get_config()["processors"]
    renderer = ConsoleRenderer(colors=False, exception_formatter=plain_traceback)
    structlog.configure(processors=[*before, renderer])
