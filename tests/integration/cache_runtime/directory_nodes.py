"""Agents on the engine `directory`, whose nodes have one directory mounted."""

from __future__ import annotations

import os
from pathlib import Path

from tests.integration.cache_runtime.runtimes import RuntimeSet

from cache_runtime.engines.directory.shared import MARKER


class SharedVolume:
    """In place of a volume of JuiceFS: the engine secret is all that agents are given of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        (path / os.fsdecode(MARKER)).touch()

    def secret(self) -> dict[str, str]:
        return {"bucket": f"file://{self.path}"}


class DirectoryRuntimes(RuntimeSet):
    """Two nodes that have the same directory mounted."""

    def is_mounted(self, partition: int) -> bool:
        try:
            return (self.mount_path(partition) / os.fsdecode(MARKER)).exists()
        except OSError:
            return False
