"""What a process that walks is asked, and what it answers: frames of some kind, with a path and a block."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import IO

_HEAD = struct.Struct("!cII")


class Kind(Enum):
    """What a frame says of its path."""

    WALK = b"w"
    """It shall be walked."""
    FILES = b"f"
    """Files of this directory, as `name NUL size`, with a NUL between two."""
    FAILED = b"e"
    """It cannot be read; the block is the error's number in decimals. The walk ends here."""
    END = b"."
    """Of the walk, which is complete."""


@dataclass(frozen=True)
class Frame:
    """One message of a walk."""

    kind: Kind
    path: bytes = b""
    block: bytes = b""

    def write(self, out: IO[bytes]) -> None:
        """Raises OSError."""
        out.write(_HEAD.pack(self.kind.value, len(self.path), len(self.block)))
        out.write(self.path)
        out.write(self.block)

    @classmethod
    def read(cls, stream: IO[bytes]) -> Frame:
        """The next one. Raises EOFError when the stream ends before it does."""
        head = stream.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise EOFError
        kind, path, block = _HEAD.unpack(head)
        content = stream.read(path + block)
        if len(content) < path + block:
            raise EOFError
        return cls(Kind(kind), content[:path], content[path:])
