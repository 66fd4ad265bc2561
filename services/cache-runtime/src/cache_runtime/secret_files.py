"""Secret files, mounted from the runtime's Secret; read when needed, never kept, never logged."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cache_runtime.domain.model import Credentials
from cache_runtime.timing import SECRET_POLL_INTERVAL_SECONDS
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent


class SecretFiles:
    """The files `<prefix>.<key>` of one directory.

    Args:
        wait: seconds until a file that a run names must have appeared.
    """

    def __init__(self, directory: Path, clock: Clock, wait: float) -> None:
        self._directory, self._clock, self._wait = directory, clock, wait

    async def credentials(self, prefix: str) -> Credentials:
        """Keys of a source, once their file has appeared (the kubelet takes up to two minutes).

        Raises:
            Permanent: `SecretMissing`; it did not appear in time.
        """
        if not prefix:
            return Credentials()
        deadline = self._clock.monotonic() + self._wait
        path = self.path(f"{prefix}.access-key")
        while not await asyncio.to_thread(path.exists):
            if self._clock.monotonic() >= deadline:
                raise Permanent(
                    "SecretMissing", f"{path} did not appear: check secretRef and its key access-key"
                )
            await self._clock.sleep(SECRET_POLL_INTERVAL_SECONDS)
        return await self.keys(prefix)

    async def keys(self, prefix: str) -> Credentials:
        """Access key and secret key, "" where a file is absent."""
        return Credentials(await self.read(f"{prefix}.access-key"), await self.read(f"{prefix}.secret-key"))

    async def read(self, name: str) -> str:
        """Content without surrounding white space (`echo | base64` leaves a newline); "" when absent."""
        try:
            return (await asyncio.to_thread(self.path(name).read_text)).strip()
        except FileNotFoundError:
            return ""

    def path(self, name: str) -> Path:
        """Where the file is mounted."""
        return self._directory / name
