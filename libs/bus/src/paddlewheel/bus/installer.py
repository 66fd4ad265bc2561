"""`python -m paddlewheel.bus.installer`: makes the streams and durables of the bus, and keeps them as
declared.

Only this program has the permissions for that; those of the services can change no stream. It runs all the
time: it makes streams again after a server lost its disk, and gives them replicas when servers are added.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_settings import SettingsConfigDict

from paddlewheel.bus.access import Access
from paddlewheel.bus.admin.permissions import INSTALLER
from paddlewheel.bus.admin.services import DeclaredServices, OthersName
from paddlewheel.bus.admin.teams import Team
from paddlewheel.bus.amounts import AGE, SIZE, measured
from paddlewheel.bus.nats import NatsBus
from paddlewheel.bus.streams import Limits, stream_named
from paddlewheel.core import http, logging, telemetry
from paddlewheel.core.errors import PaddlewheelError
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.core.run import run_service
from paddlewheel.core.settings import ServiceSettings, load_settings

SERVICE = "bus-installer"
RETRY_INTERVAL_SECONDS = 1.0
"""The time after which a failed installation is tried again."""

log = LibraryLogger(__name__)

Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
"""The name of a namespace. A wildcard of subjects does not match."""


class TeamSettings(BaseModel):
    """One team; `max_bytes` "" means that its copies are as large as the streams."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    name: OthersName
    namespaces: tuple[Namespace, ...] = ()
    max_bytes: str = Field(default="", pattern=f"^({SIZE})?$")

    @property
    def team(self) -> Team:
        """The team, with its size in bytes."""
        return Team(self.name, self.namespaces, int(measured(self.max_bytes)))


class StreamSettings(BaseModel):
    """Limits of one stream; "" = as declared."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    max_bytes: str = Field(default="", pattern=f"^({SIZE})?$")
    max_age: str = Field(default="", pattern=f"^({AGE})?$")

    @property
    def limits(self) -> Limits:
        """The limits in bytes and seconds."""
        return Limits(int(measured(self.max_bytes)), measured(self.max_age))


class Settings(ServiceSettings):
    """The installer's settings; those of every service."""

    model_config = SettingsConfigDict(env_prefix="BUS_INSTALLER_", frozen=True, extra="ignore")

    every: float = Field(default=5.0, gt=0)
    """Seconds between checks that everything exists."""
    teams: tuple[TeamSettings, ...] = ()
    """Teams of subscribers, as JSON: `[{"name": "team-a", "namespaces": ["a"]}]`; no namespaces means all."""
    services: DeclaredServices = ()
    """Declared services; the installer makes their streams and durables, too."""
    streams: dict[str, StreamSettings] = Field(default_factory=dict)
    """Streams that keep more than declared, as JSON: `{"PW_JOBS": {"maxBytes": "1Gi", "maxAge": "30d"}}`."""


class Installer:
    """Installs until it is stopped."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus
        self._trouble = "the first check has not ended"

    async def run(self, every: float, stop: asyncio.Event) -> None:
        """Install every `every` seconds until `stop`."""
        while not stop.is_set():
            await self._install()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), RETRY_INTERVAL_SECONDS if self._trouble else every)

    async def is_done(self) -> bool:
        """Whether everything existed at the last check."""
        return not self._trouble

    async def _install(self) -> None:
        try:
            await self._bus.install()
        except PaddlewheelError as error:
            if str(error) != self._trouble:
                log.warning("bus is not installed yet", why=str(error))
            self._trouble = str(error)
        else:
            self._trouble = ""


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Install until `stop`; ready when everything is in place."""
    teams = tuple(each.team for each in settings.teams)
    limits = {stream_named(name).name: each.limits for name, each in settings.streams.items()}
    measuring = telemetry.set_up(SERVICE)
    made = replace(Access.of(settings, INSTALLER), streams="make", limits=limits)
    access = replace(made, teams=teams, services=settings.services)
    bus = NatsBus(access, name=SERVICE)
    installer = Installer(bus)
    try:
        async with http.serve(settings.http_port, {"bus": installer.is_done}):
            await installer.run(settings.every, stop)
    finally:
        await bus.close()
        measuring.shutdown()


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
