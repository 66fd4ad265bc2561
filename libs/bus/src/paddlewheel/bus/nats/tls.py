"""The authority's certificate, read for each connection, so that the file may be replaced at any time."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import nats.errors

_SETTING = "nats_tls_dir: "
_AUTHORITY = "ca.crt"
_NAME_MISMATCH = (62, 64)
"""OpenSSL's error codes for a certificate with another host name, and with another address."""
_TIMEOUT_SECONDS = 2.0


class WrongCertificateError(nats.errors.Error):
    """The server's certificate is for another server."""


def load_tls(folder: str) -> ssl.SSLContext:
    """A client's TLS context, with `ca.crt` of a folder.

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
    """The fault in the `ca.crt` of a folder; "" when the folder can be used."""
    try:
        load_tls(folder)
    except nats.errors.Error as error:
        return str(error).removeprefix(_SETTING)
    return ""


async def explain(error: ssl.SSLCertVerificationError, url: str, folder: str, name: str) -> str:
    """Describe the fault of a server's certificate, and what to do.

    Args:
        name: the name that the certificate was compared with; "" = the host of `url`.
    """
    if error.verify_code not in _NAME_MISMATCH:
        authority = Path(folder) / _AUTHORITY
        fix = "set NATS_TLS_DIR to the folder with the ca.crt of this server"
        return f"{authority} is not the authority of the server's certificate ({error.verify_message}): {fix}"
    found = await _names(url, folder)
    fix = "use one of its names in NATS_URL, or set NATS_TLS_HOSTNAME to it"
    return f"the server's certificate is for {found}, not for {name or urlsplit(url).hostname}: {fix}"


async def _names(url: str, folder: str) -> str:
    """The names in the server's certificate, read over another connection that sends nothing."""
    context = load_tls(folder)
    context.check_hostname = False
    place = urlsplit(url)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(place.hostname, place.port or 4222)
            try:
                await reader.readline()
                await writer.start_tls(context, server_hostname=place.hostname)
                certificate = writer.get_extra_info("ssl_object").getpeercert()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return "another name"
    return ", ".join(value for _, value in certificate.get("subjectAltName", ())) or "no name"
