"""JSON logs on stderr, with constant messages and fields, for our code and for libraries."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import orjson
import structlog
from opentelemetry import trace
from structlog.processors import ExceptionRenderer
from structlog.tracebacks import ExceptionDictTransformer

Fields = MutableMapping[str, Any]

_TRACEBACKS = ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
"""Renders tracebacks without the values of variables, which may be secret keys."""


def set_up(service: str, level: str = "info") -> None:
    """Write each record of structlog and of the standard library's logging as one JSON line.

    Args:
        service: name of the service, a field of every record.
        level: lowest level that is written: debug, info, warning or error.
    """

    def name_service(_: Any, __: str, fields: Fields) -> Fields:
        fields["service"] = service
        return fields

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_service,
        _add_trace,
        _TRACEBACKS,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    _install_handler(shared, level)


def _install_handler(shared: list[structlog.typing.Processor], level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(serializer=_to_json),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").addFilter(_is_relevant)
    # One line for each request would hide our own lines.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


def _add_trace(_: Any, __: str, fields: Fields) -> Fields:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        fields["trace_id"] = trace.format_trace_id(context.trace_id)
    return fields


def _to_json(fields: Any, **_: Any) -> str:
    return orjson.dumps(fields, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _is_relevant(record: logging.LogRecord) -> bool:
    """False for asyncio's warning that a peer closed a TLS connection first: it needs no action."""
    return "eof_received()" not in record.getMessage()
