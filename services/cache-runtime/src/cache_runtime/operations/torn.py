"""Copies of objects that have changed while they were read: parts of two versions. They are removed, for a
later sync would find them done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cache_runtime.timing import CLOCK_CORRECTION_GRACE_SECONDS
from cache_runtime.tree import Tree
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent, Retry


class TornFiles:
    """Those of a run that could not be removed yet: a mount may be lost before."""

    def __init__(self, tree: Tree, clock: Clock) -> None:
        self._tree, self._clock = tree, clock
        self._copied = dict[bytes, float]()
        """By path, when its copy had ended, in seconds since 1970."""

    def add(self, paths: Iterable[bytes]) -> None:
        """Remember files, of which the copies have just ended."""
        self._copied |= dict.fromkeys(paths, self._clock.now().timestamp())

    async def remove(self, paths: Iterable[bytes]) -> Mapping[bytes, str]:
        """Remove the known ones of these files; why some stay, by path.

        What was changed after the copy is somebody's own file, and forgotten. By the clocks of the nodes:
        one that is late hides a change that was made there.
        """
        stays = dict[bytes, str]()
        for path in paths:
            if path not in self._copied:
                continue
            try:
                await self._remove(path)
            except (Retry, Permanent) as error:
                stays[path] = f"parts of two versions stay: {error.message}"
            else:
                del self._copied[path]
        return stays

    async def remove_all(self) -> Mapping[bytes, str]:
        """The same, of all."""
        return await self.remove(list(self._copied))

    async def _remove(self, path: bytes) -> None:
        [found] = await self._tree.stat([path])
        if found is not None and found.changed <= self._copied[path] + CLOCK_CORRECTION_GRACE_SECONDS:
            await self._tree.remove_files([path])
