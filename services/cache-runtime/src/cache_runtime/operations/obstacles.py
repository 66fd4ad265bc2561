"""Obstacles of a sync: the data set has a file where the source has a directory, or the reverse."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from contextlib import aclosing

from cache_runtime.domain.model import Obstacle
from cache_runtime.domain.paths import decode_path, join
from cache_runtime.operations.base import Node
from paddlewheel.contracts.generated.cache_v1 import RunSpec
from paddlewheel.core.errors import Permanent, Retry

_FIELD = "syncOptions.destination"
_AFTER_SLASH = b"0"
"""The character after the slash: no key below a directory sorts after the directory's name with it."""


class Obstacles:
    """The obstacles of one chunk.

    Args:
        may_remove: whether the sync deletes what the source does not have.
    """

    def __init__(self, node: Node, spec: RunSpec, destination: bytes, *, may_remove: bool) -> None:
        assert spec.sync is not None
        self._engine, self._tree, self._sync = node.engine, node.tree, spec.sync
        self._set, self._may_remove = f"{spec.set_namespace}/{spec.set_name}", may_remove
        self._top = join(destination, b"")
        self._removable: set[Obstacle] = set()
        self._stays: dict[Obstacle, str] = {}

    async def find(self, paths: Mapping[str, bytes]) -> Mapping[str, str]:
        """The problems of the files that have an obstacle.

        Args:
            paths: the paths of files that could not be written, by name.

        Raises:
            Retry, Permanent: the source cannot be listed, or the file system fails.
        """
        found = await self._tree.obstacles(list(paths.values()))
        by_file = {name: each for name, each in zip(paths, found, strict=True) if each is not None}
        both = await self._in_source(set(by_file.values()))
        self._removable = {
            each for each in by_file.values() if self._may_remove and self._is_below(each)
        } - both
        return {name: self._message(each, is_both=each in both) for name, each in by_file.items()}

    async def remove(self) -> None:
        """Remove the obstacles that were found last, except those in the source."""
        for obstacle in self._removable:
            try:
                self._stays[obstacle] = await self._remove(obstacle)
            except (Retry, Permanent) as error:
                self._stays[obstacle] = error.message
        self._removable = set()

    async def _remove(self, obstacle: Obstacle) -> str:
        """The problem. Another agent may have written the right file or directory meanwhile, which stays."""
        if not obstacle.is_directory:
            await self._tree.remove_files([obstacle.path])
            return ""
        [is_there] = await self._tree.directories([obstacle.path])
        if not is_there:
            return ""
        return await self._engine.volume.remove(await self._tree.locate(obstacle.path, _FIELD))

    def _is_below(self, obstacle: Obstacle) -> bool:
        """Whether the obstacle is below the destination, and not the destination itself."""
        return obstacle.path.startswith(self._top)

    def _key(self, obstacle: Obstacle) -> bytes:
        return obstacle.path.removeprefix(self._top)

    async def _in_source(self, obstacles: Iterable[Obstacle]) -> set[Obstacle]:
        """The obstacles that the source has, too: an object, and others below it."""
        keys = {self._key(each): each for each in obstacles if self._is_below(each)}
        if not keys:
            return set()
        first, last = _text(min(keys)), _text(max(key + _AFTER_SLASH for key in keys))
        found = set[Obstacle]()
        part = self._sync.model_copy(update={"start": first, "end": last})
        async with aclosing(self._engine.transfer.list(part)) as listing:
            async for files in listing:
                for file in files:
                    found |= {keys[name] for name in _names(decode_path(file.path), keys)}
        return found

    def _message(self, obstacle: Obstacle, *, is_both: bool) -> str:
        key, path = _text(self._key(obstacle)), _text(obstacle.path)
        if is_both:
            text = f"the source has the object {key!r} and objects below {key + '/'!r}"
            return f"{text}, and a file system has one of them only: rename the object"
        other = "file" if obstacle.is_directory else "directory"
        text = f"{path!r} is a {obstacle.kind} in the data set and a {other} in the source"
        if why := self._stays.get(obstacle):
            return f"{text}, and cannot be removed: {why}"
        remedy = f"`paddlewheel data remove {self._set} {shlex.quote(path)}`"
        return f"{text}: remove it with {remedy}" + ("" if self._may_remove else ", or sync with delete-dst")


def _names(key: bytes, obstacles: Mapping[bytes, Obstacle]) -> Iterable[bytes]:
    """The obstacles that an object of the source shows to be there: the file itself, or its directory."""
    if key in obstacles and not obstacles[key].is_directory:
        yield key
    parts = key.split(b"/")
    for depth in range(1, len(parts)):
        name = b"/".join(parts[:depth])
        if name in obstacles and obstacles[name].is_directory:
            yield name


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
