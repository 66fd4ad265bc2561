"""Messages between the server and the process that runs the model: Python values, arrays without a copy.

A frame is the number of parts and the length of each (little-endian, 8 bytes), then the parts: a pickle and
the buffers that it refers to. A model can be a program that writes what it likes, so only the types of the
messages and arrays are admitted.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import socket
import struct
from collections.abc import Sequence
from enum import Enum
from typing import Any

_NUMBER = struct.Struct("<Q")
_OWN = ("paddle_runtime.orders", "paddle_runtime.domain.model")
_ARRAYS = frozenset(
    {
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.numeric", "_frombuffer"),
    }
)
Buffer = bytes | bytearray | memoryview


class _Writer(pickle.Pickler):
    """Writes members of an enum by value: Python 3.11.2 writes a call of `getattr`, which is not admitted."""

    def reducer_override(self, obj: object) -> Any:
        return (type(obj), (obj.value,)) if isinstance(obj, Enum) else NotImplemented


def encode(value: object) -> list[Buffer]:
    """The frame in pieces."""
    buffers: list[pickle.PickleBuffer] = []
    written = io.BytesIO()
    _Writer(written, protocol=5, buffer_callback=buffers.append).dump(value)
    parts: list[Buffer] = [written.getbuffer()]
    parts += [buffer.raw() for buffer in buffers]
    lengths = [_NUMBER.pack(part.nbytes if isinstance(part, memoryview) else len(part)) for part in parts]
    return [_NUMBER.pack(len(parts)) + b"".join(lengths), *parts]


class _Reader(pickle.Unpickler):
    """Makes messages and arrays, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARRAYS:
            return super().find_class(module, name)
        found = super().find_class(module, name) if module in _OWN else None
        if isinstance(found, type) and found.__module__ == module:
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a message")


def _decode(parts: Sequence[Buffer]) -> Any:
    """Raises pickle.UnpicklingError, or another error of a frame that does not come from `encode`."""
    return _Reader(io.BytesIO(parts[0]), buffers=parts[1:]).load()


async def read(reader: asyncio.StreamReader) -> Any:
    """The next value. Raises asyncio.IncompleteReadError at the end."""
    (count,) = _NUMBER.unpack(await reader.readexactly(_NUMBER.size))
    lengths = _NUMBER.iter_unpack(await reader.readexactly(_NUMBER.size * count))
    return _decode([await reader.readexactly(length) for (length,) in lengths])


def receive(connection: socket.socket) -> Any:
    """The next value. Raises EOFError at the end."""
    (count,) = _NUMBER.unpack(_exactly(connection, _NUMBER.size))
    lengths = _NUMBER.iter_unpack(_exactly(connection, _NUMBER.size * count))
    return _decode([_exactly(connection, length) for (length,) in lengths])


def send(connection: socket.socket, value: object) -> None:
    """Return when the whole frame is written."""
    for part in encode(value):
        connection.sendall(part)


def _exactly(connection: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    while view:
        got = connection.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return data
