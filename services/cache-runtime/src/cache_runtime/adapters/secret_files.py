"""Keys from the mounted secret; read when needed, never kept, never logged."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cache_runtime.domain.juicefs import Credentials, Engine
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry

_POLL = 1.0


class SecretFiles:
    """The files of the set's runtime secret: `<prefix>.<key>`."""

    def __init__(self, directory: Path, clock: Clock, wait: float) -> None:
        self._directory, self._clock, self._wait = directory, clock, wait

    async def engine(self) -> Engine:
        """Raises Retry naming the file that is missing."""
        values = {
            name: await self._read(f"engine.{name}") for name in ("name", "storage", "bucket", "metaurl")
        }
        for name, value in values.items():
            if not value:
                path = self._directory / f"engine.{name}"
                raise Retry("SecretMissing", f"{path}: add key {name!r} to the engine secret")
        return Engine(**values, keys=await self._keys("engine"))

    async def credentials(self, prefix: str) -> Credentials:
        """Keys of a source, once its file has appeared (the kubelet takes up to two minutes).

        Raises:
            Permanent: `SecretMissing`; it did not appear in time.
        """
        if not prefix:
            return Credentials()
        deadline = self._clock.monotonic() + self._wait
        path = self._directory / f"{prefix}.access-key"
        while not await asyncio.to_thread(path.exists):
            if self._clock.monotonic() >= deadline:
                raise Permanent(
                    "SecretMissing", f"{path} did not appear: check secretRef and its key access-key"
                )
            await self._clock.sleep(_POLL)
        return await self._keys(prefix)

    async def _keys(self, prefix: str) -> Credentials:
        return Credentials(await self._read(f"{prefix}.access-key"), await self._read(f"{prefix}.secret-key"))

    async def _read(self, name: str) -> str:
        """The file without surrounding white space (`echo | base64` leaves a newline); "" when absent."""
        try:
            return (await asyncio.to_thread((self._directory / name).read_text)).strip()
        except FileNotFoundError:
            return ""
