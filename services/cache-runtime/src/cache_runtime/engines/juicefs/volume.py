"""The volume through its mount point."""

from __future__ import annotations

import secrets as random_ids
from pathlib import Path

from cache_runtime.domain.model import TreeSize
from cache_runtime.engines.juicefs import commands
from cache_runtime.engines.juicefs.client import JuiceFsClient
from cache_runtime.engines.juicefs.control import INTERNAL_INODES
from cache_runtime.engines.juicefs.control_file import ControlFile
from cache_runtime.timing import REMOVE_TIMEOUT_SECONDS


class JuiceFsVolume:
    """Implements `Volume`."""

    def __init__(self, client: JuiceFsClient, control: ControlFile) -> None:
        self._client, self._control = client, control

    @property
    def own_inodes(self) -> range:
        return INTERNAL_INODES

    async def remove(self, path: Path) -> str:
        log_id = random_ids.token_hex(16)
        done = await self._client.run(commands.remove([str(path)], log_id), timeout=REMOVE_TIMEOUT_SECONDS)
        return done.problem_under(log_id) if done.code else ""

    async def size(self) -> TreeSize:
        return await self._control.tree_size()
