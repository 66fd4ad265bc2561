"""A new key: it must reach this process and the servers, which have its public half, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bus_auth.timing import KEY_FILE_CHECK_INTERVAL_SECONDS
from paddlewheel.bus.callout.keys import CalloutKey
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent
from paddlewheel.core.library_logging import LibraryLogger

REMEDY = "restart the NATS servers and bus-auth: kubectl rollout restart statefulset/nats deployment/bus-auth"

log = LibraryLogger(__name__)


class Servers(Protocol):
    """What shows which key the servers have."""

    async def use_another_key(self) -> bool:
        """Whether they do not let this process in any more, or ask with another key."""
        ...


class KeyWatch:
    """The key in use, and the file that it was read from.

    The key in use stays so while the servers have it: clients are let in, whichever of the two gets the new
    one first. When the servers have it, this process must start again.
    """

    def __init__(self, file: Path, key: CalloutKey, servers: Servers, clock: Clock) -> None:
        self._file, self._key, self._servers, self._clock = file, key, servers, clock
        self._changed = False

    async def run(self) -> None:
        """Until cancelled. Raises Permanent when the file has the servers' key, and this process has not."""
        while True:
            await self._clock.sleep(KEY_FILE_CHECK_INTERVAL_SECONDS)
            self._look()
            if self._changed and await self._servers.use_another_key():
                raise Permanent(
                    "KeyReplaced", f"{self._file} has another key than at the start; starting again"
                )

    async def is_current(self) -> bool | str:
        """For readiness."""
        return not self._changed or f"the key in {self._file} is another than the one in use: {REMEDY}"

    def _look(self) -> None:
        try:
            changed = CalloutKey(self._file).public.user != self._key.public.user
        except Permanent as error:
            # It may be half written; a next start would say so.
            log.warning("the key file cannot be read", why=str(error))
            return
        if changed and not self._changed:
            log.warning("the key file has changed; the key before is used for now", remedy=REMEDY)
        self._changed = changed
