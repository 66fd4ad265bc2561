"""Detects a new key of bus-auth, which this process and the servers load one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bus_auth.timing import KEY_FILE_CHECK_INTERVAL_SECONDS
from paddlewheel.bus.callout.keys import CalloutKey
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent
from paddlewheel.core.library_logging import LibraryLogger

FIX = "restart the NATS servers and bus-auth: kubectl rollout restart statefulset/nats deployment/bus-auth"

log = LibraryLogger(__name__)


class Servers(Protocol):
    """The connection to the servers, which shows which key they have."""

    async def use_another_key(self) -> bool:
        """Whether the servers refuse this process, or encrypt requests for another key."""
        ...


class KeyWatch:
    """Compares the key in use with the file that it was read from.

    This process continues with the former key until the servers have the new one, so clients are accepted
    whichever of the two gets it first. Then this process must start again.
    """

    def __init__(self, file: Path, key: CalloutKey, servers: Servers, clock: Clock) -> None:
        self._file, self._key, self._servers, self._clock = file, key, servers, clock
        self._changed = False

    async def run(self) -> None:
        """Watch until cancelled. Raises Permanent when the file and the servers have a new key."""
        while True:
            await self._clock.sleep(KEY_FILE_CHECK_INTERVAL_SECONDS)
            self._check_file()
            if self._changed and await self._servers.use_another_key():
                raise Permanent(
                    "KeyReplaced",
                    f"{self._file} has another key than at the start: bus-auth ends, to start again with it",
                )

    async def is_current(self) -> bool | str:
        """Whether the file has the key in use, or the reason why not; for the readiness probe."""
        return not self._changed or f"{self._file} has another key than the one in use: {FIX}"

    def _check_file(self) -> None:
        try:
            changed = CalloutKey(self._file).public.user != self._key.public.user
        except Permanent as error:
            # The file may be partly written. If it stays unreadable, the next start fails with this error.
            log.warning("the key file cannot be read", why=str(error))
            return
        if changed and not self._changed:
            log.warning("the key file has changed; bus-auth continues with the former key", fix=FIX)
        self._changed = changed
