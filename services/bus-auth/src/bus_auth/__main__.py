"""`bus-auth` authorizes clients; `bus-auth server-config` configures the server beside it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from aiohttp import web

from bus_auth.app import run
from bus_auth.config import Settings
from bus_auth.domain.names import SERVICE
from bus_auth.server_config import ServerConfig, Sources
from bus_auth.server_monitor import routes
from bus_auth.timing import SERVER_CONFIG_CHECK_INTERVAL_SECONDS, SERVER_RELOAD_RETRY_INTERVAL_SECONDS
from paddlewheel.bus.nats.monitor import ask_monitor
from paddlewheel.core import http, logging
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import Permanent
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.run import run_service
from paddlewheel.core.settings import load_settings

USAGE = (
    "bus-auth server-config <nats.conf> <bus-auth's tls.crt> <folder of the server's certificate> <folder>"
    " <address of the server's monitor> <port for probes>"
)
PROBES = http.Limits(connections=500, idle=10.0, of_one_address=10, headers=16)
"""Limits of the port with the server's probes, so that other pods cannot block the kubelet's probes."""
log = LibraryLogger(__name__)


def main() -> int:
    """Exit code: 0 after a clean stop, 1 after an error, 2 for invalid settings or arguments."""
    match sys.argv[1:]:
        case []:
            return _answer()
        case ["server-config", config, certificate, tls, folder, monitor, port]:
            logging.set_up(SERVICE)
            sources = Sources(Path(config), Path(certificate), Path(tls))
            server = ServerConfig(sources, Path(folder), partial(ask_monitor, monitor), SystemClock())
            return run_service(partial(_keep, server, routes(monitor, lambda: server.is_loaded), int(port)))
    sys.stderr.write(f"usage: {USAGE}\n")
    return 2


def _answer() -> int:
    try:
        settings = load_settings(Settings)
    except Permanent as error:
        sys.stderr.write(f"{SERVICE}: {error.message}\n")
        return 2
    logging.set_up(SERVICE, settings.log_level)
    return run_service(partial(run, settings))


async def _keep(config: ServerConfig, probes: Iterable[web.RouteDef], port: int, stop: asyncio.Event) -> None:
    """Keep the files up to date until `stop`.

    Raises:
        Permanent, OSError: the server has no files yet, and they cannot be written.
    """
    async with http.serve(port, None, probes, limits=PROBES):
        await keep_files(config, stop)


async def keep_files(config: ServerConfig, stop: asyncio.Event) -> None:
    """Update the files until `stop`. Raises Permanent or OSError if the first cannot be written."""
    loaded = False
    if not config.has_files:
        loaded = await config.update()
    while not stop.is_set():
        pause = SERVER_CONFIG_CHECK_INTERVAL_SECONDS if loaded else SERVER_RELOAD_RETRY_INTERVAL_SECONDS
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)
        try:
            loaded = await config.update()
        except (OSError, Permanent) as error:
            # The kubelet may be replacing the files.
            log.warning("the server's configuration cannot be read", why=str(error))


if __name__ == "__main__":
    sys.exit(main())
