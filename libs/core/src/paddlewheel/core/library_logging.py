"""Logging for libraries that other programs import. It changes no global configuration.

If the program has configured structlog, as our services do, records go to the program's own log. Otherwise
they go to the standard library's logger `paddlewheel`, and never to standard output.
"""

from __future__ import annotations

import logging

import structlog


class LibraryLogger:
    """Logs constant messages with fields. The destination is chosen when a record is written."""

    def __init__(self, name: str) -> None:
        self._plain: structlog.stdlib.BoundLogger = structlog.wrap_logger(
            logging.getLogger(name),
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.format_exc_info,
                structlog.processors.LogfmtRenderer(key_order=["event"]),
            ],
            wrapper_class=structlog.stdlib.BoundLogger,
            cache_logger_on_first_use=False,
        )

    def debug(self, event: str, **fields: object) -> None:
        self._logger.debug(event, **fields)

    def info(self, event: str, **fields: object) -> None:
        self._logger.info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        self._logger.warning(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        self._logger.error(event, **fields)

    def exception(self, event: str, **fields: object) -> None:
        """Log an error with the exception that is being handled."""
        self._logger.exception(event, **fields)

    @property
    def _logger(self) -> structlog.stdlib.BoundLogger:
        return structlog.get_logger() if structlog.is_configured() else self._plain
