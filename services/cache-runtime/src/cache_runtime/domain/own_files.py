"""Which files of a volume are those of the cache engine itself. Imports nothing, as `walk` wants it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OwnFiles:
    """No operation may touch them.

    Args:
        inodes: their numbers.
        device: of the file system that has given these, as it is told of the files themselves: that of a
            directory may be another one (overlayfs), and below it others may have given the same numbers.
            None = any.
    """

    inodes: range = range(0)
    device: int | None = None

    def has(self, inode: int, device: int) -> bool:
        """Whether a file is one of them."""
        return inode in self.inodes and self.device in (None, device)
