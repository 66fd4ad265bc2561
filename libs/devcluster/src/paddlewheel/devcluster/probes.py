"""Readiness probes for units."""

from __future__ import annotations

import http.client
import socket
import ssl
from urllib.parse import urlsplit

_PROBE_TIMEOUT_SECONDS = 2.0


def is_ready(probe: str) -> bool:
    """Run a probe once; see `Unit.ready` for its forms. Takes at most 2 seconds."""
    if not probe:
        return True
    kind, _, rest = probe.partition(":")
    if kind == "tcp":
        host, _, port = rest.rpartition(":")
        return _connects(socket.AF_INET, (host, int(port)))
    if kind == "unix":
        return _connects(socket.AF_UNIX, rest)
    return _answers(probe)


def _connects(family: socket.AddressFamily, address: str | tuple[str, int]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(_PROBE_TIMEOUT_SECONDS)
        return client.connect_ex(address) == 0


def _answers(url: str) -> bool:
    connection = _connection(url)
    try:
        connection.request("GET", urlsplit(url).path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _connection(url: str) -> http.client.HTTPConnection:
    # http.client rather than urllib, which would use a proxy from the environment.
    parts = urlsplit(url)
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.netloc, timeout=_PROBE_TIMEOUT_SECONDS)
    # This is only a liveness check over the cluster's own link; verifying the certificate adds nothing.
    return http.client.HTTPSConnection(
        parts.netloc, timeout=_PROBE_TIMEOUT_SECONDS, context=ssl._create_unverified_context()
    )
