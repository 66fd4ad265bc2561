"""Access to the bus: from the arguments, otherwise from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paddlewheel.bus import Access
from paddlewheel.bus.admin.permissions import SUBSCRIBER, inbox_prefix
from paddlewheel.sdk.errors import InvalidArgument


def resolve_access(
    url: str | None = None,
    tls_dir: str | Path | None = None,
    creds_file: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Access:
    """Use NATS_URL, NATS_TLS_DIR and NATS_CREDS for arguments that are not given.

    NATS_TLS_HOSTNAME is the name in the server's certificate if it differs from the address.

    Raises:
        InvalidArgument: there is no address, or a file does not exist.
    """
    env = os.environ if environment is None else environment
    address = url or env.get("NATS_URL", "")
    folder = str(tls_dir or env.get("NATS_TLS_DIR", ""))
    credentials = str(creds_file or env.get("NATS_CREDS", ""))
    if not address:
        remedy = 'pass url="nats://nats.paddle-system.svc:4222" or set NATS_URL'
        raise InvalidArgument("url", "the address of the bus is unknown", remedy)
    if folder and not (Path(folder) / "ca.crt").is_file():
        remedy = (
            "pass a folder with ca.crt, tls.crt and tls.key (Secret nats-tls-subscriber) or set NATS_TLS_DIR"
        )
        raise InvalidArgument("tls_dir", f"there is no ca.crt in {folder!r}", remedy)
    if credentials and not Path(credentials).is_file():
        remedy = "pass a NATS credentials file or set NATS_CREDS"
        raise InvalidArgument("creds_file", f"there is no file {credentials!r}", remedy)
    return Access(
        url=address,
        creds_file=credentials,
        tls_dir=folder,
        tls_hostname=env.get("NATS_TLS_HOSTNAME", ""),
        makes_streams=False,
        inbox_prefix=inbox_prefix(SUBSCRIBER),
        role=SUBSCRIBER,
    )
