"""`python -m paddlewheel.bus.installer`: makes the streams and durables of the bus, and keeps them.

The only program that may: it runs apart from the services, whose credentials can then change nothing. It goes
on after the first time: streams return after a server lost its disk, and follow when servers are added.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import replace

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import INSTALLER
from paddlewheel.bus.nats import NatsBus
from paddlewheel.core import http, logging
from paddlewheel.core.errors import PaddlewheelError
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.run import run_service
from paddlewheel.core.settings import ServiceSettings, load_settings

SERVICE = "bus-installer"
_AGAIN = 1.0
"""Seconds after which it tries again what failed."""

log = LibraryLogger(__name__)


class Settings(ServiceSettings):
    """The installer's settings; those of every service."""

    model_config = SettingsConfigDict(env_prefix="BUS_INSTALLER_", frozen=True, extra="ignore")

    every: float = Field(default=10.0, gt=0)
    """Seconds between checks that everything is still there."""


async def keep_installed(bus: NatsBus, every: float, stop: asyncio.Event) -> None:
    """Install, and again every `every` seconds, until `stop`."""
    trouble = ""
    while not stop.is_set():
        try:
            await bus.install()
            wait, trouble = every, ""
        except PaddlewheelError as error:
            if str(error) != trouble:
                log.warning("bus is not installed yet", why=str(error))
            wait, trouble = _AGAIN, str(error)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Install until `stop`; ready when everything is in place."""
    bus = NatsBus(replace(Access.of(settings, INSTALLER), streams="make"), name=SERVICE)
    try:
        async with http.serve(settings.http_port, {"bus": bus.healthy}):
            await keep_installed(bus, settings.every, stop)
    finally:
        await bus.close()


def main() -> int:
    """Exit code: 0 after a clean stop, 1 after an error (logged)."""

    async def run(stop: asyncio.Event) -> None:
        settings = load_settings(Settings)
        logging.set_up(SERVICE, settings.log_level)
        await serve(settings, stop)

    logging.set_up(SERVICE)
    return run_service(run)


if __name__ == "__main__":
    sys.exit(main())
