"""How a command connects to the bus: from the environment, or with a token of the cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import inbox_prefix
from paddlewheel.cli.install import SYSTEM_NAMESPACE
from paddlewheel.cli.portforward import port_forward
from paddlewheel.cli.private import private_folder
from paddlewheel.cli.target import Target
from paddlewheel.contracts.bus_tokens import AUDIENCE, TOKEN, TOKEN_TIMEOUT_SECONDS
from paddlewheel.core.errors import NotFound, PaddlewheelError, Permanent
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.tasks import end
from paddlewheel.sdk.access import resolve_access

SERVER_NAME = "nats"
"""The name in the certificate of the server, which is reached at a forwarded port."""
CA = "ca.crt"
_CLIENT_PORT = 4222
_AUTHORITY = "bus-ca"
"""ConfigMap with the certificate of the bus's authority."""
_TOKEN_INTERVAL_SECONDS = TOKEN_TIMEOUT_SECONDS / 2

log = LibraryLogger(__name__)


@asynccontextmanager
async def bus_access(where: Target | None, *, role: str) -> AsyncIterator[Access]:
    """Yield an access to the bus that is valid while the block runs.

    Args:
        where: the cluster whose bus is used; None for the server of NATS_URL, with NATS_TLS_DIR (ca.crt),
            NATS_TOKEN_FILE and NATS_CREDS if set.
        role: the role to connect as: `subscriber` reads facts, `operator` may do everything.

    Raises:
        InvalidArgument: a variable names a file that cannot be used.
        Permanent: the cluster cannot be used, or a token may not be made.
        Retry: kubectl could not forward.
    """
    if where is None:
        yield resolve_access(role=role)
        return
    async with cluster_bus_access(where, role=role) as access:
        yield access


@asynccontextmanager
async def cluster_bus_access(where: Target, *, role: str) -> AsyncIterator[Access]:
    """Yield an access to the bus of a cluster; see `bus_access`.

    Until the block ends, a token of the service account `<role>` is in a folder that only this user can read.

    Raises:
        Permanent: the bus of the cluster is not the chart's, or the token may not be made.
        Retry: kubectl could not forward.
    """
    with private_folder() as folder:
        await _fetch_authority(where, folder / CA)
        async with (
            port_forward(where.tools, SYSTEM_NAMESPACE, "svc/nats", _CLIENT_PORT) as port,
            _fresh_token(where, role, folder / TOKEN),
        ):
            yield Access(
                f"tls://127.0.0.1:{port}",
                tls_dir=str(folder),
                tls_hostname=SERVER_NAME,
                token_file=str(folder / TOKEN),
                streams="assume",
                inbox_prefix=inbox_prefix(role),
                ends_with_wrong_certificate=True,
                role=role,
            )


async def _fetch_authority(where: Target, file: Path) -> None:
    """Write the certificate of the bus's authority. Raises Permanent."""
    try:
        found = await where.get(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{_AUTHORITY}")
    except NotFound as error:
        raise Permanent(
            "NoBus",
            f"ConfigMap {SYSTEM_NAMESPACE}/{_AUTHORITY} does not exist; for a bus of your own set NATS_URL",
        ) from error
    _write_private(file, str((orjson.loads(found).get("data") or {}).get(CA, "")).encode())


@asynccontextmanager
async def _fresh_token(where: Target, role: str, file: Path) -> AsyncIterator[None]:
    """Keep a valid token of the role's service account in the file. Raises Permanent when it is refused."""
    _write_private(file, await _make_token(where, role))
    renewing = asyncio.create_task(_renew(where, role, file))
    try:
        yield
    finally:
        await end(renewing)


async def _renew(where: Target, role: str, file: Path) -> None:
    while True:
        await asyncio.sleep(_TOKEN_INTERVAL_SECONDS)
        try:
            await asyncio.to_thread(file.write_bytes, await _make_token(where, role))
        except PaddlewheelError as error:
            log.warning("token not renewed", role=role, why=str(error))


async def _make_token(where: Target, role: str) -> bytes:
    made = await where.tools.run(
        "kubectl", "create", "token", role, "--namespace", SYSTEM_NAMESPACE,
        "--audience", AUDIENCE, "--duration", f"{TOKEN_TIMEOUT_SECONDS}s",
    )  # fmt: skip
    return made.strip().encode()


def _write_private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
