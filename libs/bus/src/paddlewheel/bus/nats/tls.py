"""Certificates from files, read whenever a connection is made, so that they may be replaced at any time."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats.errors

_SETTING = "nats_tls_dir: "
_AUTHORITY, _CERTIFICATE, _KEY = "ca.crt", "tls.crt", "tls.key"


def load_tls(folder: str) -> ssl.SSLContext:
    """A client's TLS context from `ca.crt` and, for mutual TLS, `tls.crt` and `tls.key` in a folder.

    Raises:
        nats.errors.Error: a file is missing or invalid; names the file and the setting.
    """
    authority, certificate, key = (Path(folder) / name for name in (_AUTHORITY, _CERTIFICATE, _KEY))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with _naming(authority):
        context.load_verify_locations(authority)
    if certificate.exists() or key.exists():
        with _naming(key):
            key.read_bytes()
        with _naming(certificate):
            context.load_cert_chain(certificate, key)
    return context


def tls_problem(folder: str) -> str:
    """What is wrong with a folder of certificates, by file; "" when it can be used."""
    try:
        load_tls(folder)
    except nats.errors.Error as error:
        return str(error).removeprefix(_SETTING)
    return ""


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Python's own messages name neither the file nor the setting."""
    try:
        yield
    except OSError as error:
        raise nats.errors.Error(f"{_SETTING}{file}: {error.strerror or error}") from error
