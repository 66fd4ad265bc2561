"""What the SDK says beside events goes to the standard library's logging, as from any library."""

from __future__ import annotations

import structlog


def log_as_a_library() -> None:
    """Keep log lines off a program's standard output, unless it has set structlog up to its own liking."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.LogfmtRenderer(key_order=["event"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
