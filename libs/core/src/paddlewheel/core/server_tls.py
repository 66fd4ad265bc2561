"""A server's certificate, read for each handshake, so that the files may be renewed at any time."""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


def serving_tls(folder: Path) -> ssl.SSLContext:
    """A server's TLS context by the files of a Secret of type kubernetes.io/tls.

    Raises:
        ValueError: a file is missing or invalid. Later, the last valid files stay in use, which is logged.
    """
    context = latest = _loaded(folder)

    def use_latest(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal latest
        try:
            latest = _loaded(folder)
        except ValueError as error:
            log.error("TLS files not read, the last valid ones stay in use", error=str(error))
        connection.context = latest

    context.sni_callback = use_latest
    return context


def _loaded(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    except OSError as error:
        # Python's own message does not name the files.
        raise ValueError(f"{folder}: tls.crt and tls.key: {error.strerror or error}") from error
    return context
