"""The authority's certificate, read for each connection, so that the file may be replaced at any time."""

from __future__ import annotations

import ssl
from pathlib import Path

import nats.errors

_SETTING = "nats_tls_dir: "
_AUTHORITY = "ca.crt"


def load_tls(folder: str) -> ssl.SSLContext:
    """A client's TLS context by `ca.crt` in a folder.

    Raises:
        nats.errors.Error: the file is missing or invalid; names the file and the setting.
    """
    authority = Path(folder) / _AUTHORITY
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(authority)
    except OSError as error:
        # Python's own message names neither the file nor the setting.
        raise nats.errors.Error(f"{_SETTING}{authority}: {error.strerror or error}") from error
    return context


def tls_problem(folder: str) -> str:
    """What is wrong with a folder, by file; "" when it can be used."""
    try:
        load_tls(folder)
    except nats.errors.Error as error:
        return str(error).removeprefix(_SETTING)
    return ""
