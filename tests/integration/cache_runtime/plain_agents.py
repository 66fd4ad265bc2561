"""Agents on the plain engine: two processes, one directory, no client, no database and no store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.contract.engines import plain
from tests.integration.cache_runtime.runtimes import RuntimeSet

from cache_runtime import __main__ as agent
from paddlewheel.testkit.storage import JuiceFsVolume

_VOLUME = "PLAIN_VOLUME"
_UNUSED = JuiceFsVolume("unused", "", "", "", "", "")


@dataclass
class PlainRuntimes(RuntimeSet):
    """Its agents have `volume_directory` in common."""

    volume: JuiceFsVolume = _UNUSED
    module: str = __name__

    @property
    def volume_directory(self) -> Path:
        return self.directory / "volume"

    def is_mounted(self, partition: int) -> bool:
        return self.mount_path(partition).is_symlink()

    def _environment(self, partition: int) -> dict[str, str]:
        return {**super()._environment(partition), _VOLUME: str(self.volume_directory)}


if __name__ == "__main__":
    agent.main(partial(plain.create_engine, Path(os.environ[_VOLUME])))
