"""Messages between the server and the process that runs the model: Python values, arrays without a copy.

A frame is its length and the number of parts, then the length of each (little-endian, 8 bytes), then the
parts: a pickle and the buffers that it refers to, each from a multiple of 16 bytes on, as vector instructions
like it. A model can be a program that writes what it likes, so only the types of the messages and arrays are
admitted.

A frame that is small is sent by one call and received by one: a round trip between two processes takes twice
as long when a message comes in three pieces.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
from collections.abc import Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any

_HEAD = struct.Struct("<QQ")
_NUMBER = struct.Struct("<Q")
_ALIGNED = 16
_SMALL = 64 * 1024
"""Bytes that are received before a frame's length is known, and up to which it is sent as one piece."""
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
    """The frame in pieces; one when it is small."""
    buffers: list[pickle.PickleBuffer] = []
    written = io.BytesIO()
    _Writer(written, protocol=5, buffer_callback=buffers.append).dump(value)
    parts = [memoryview(written.getbuffer()), *(buffer.raw() for buffer in buffers)]
    lengths = b"".join(_NUMBER.pack(part.nbytes) for part in parts)
    pieces: list[Buffer] = [lengths]
    end = _HEAD.size + len(lengths)
    for part in parts:
        gap = _gap(end)
        pieces += [bytes(gap), part]
        end += gap + part.nbytes
    pieces.insert(0, _HEAD.pack(end, len(parts)))
    return [b"".join(pieces)] if end <= _SMALL else pieces


def _gap(end: int) -> int:
    """Bytes until a part may begin."""
    return -end % _ALIGNED


class _Reader(pickle.Unpickler):
    """Makes messages and arrays, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        return _admitted(module, name)


@cache
def _admitted(module: str, name: str) -> Any:
    """Raises pickle.UnpicklingError."""
    is_array = (module, name) in _ARRAYS
    found = getattr(import_module(module), name, None) if is_array or module in _OWN else None
    if is_array or (isinstance(found, type) and found.__module__ == module):
        return found
    raise pickle.UnpicklingError(f"{module}.{name} is not part of a message")


class Assembler:
    """Makes values of the bytes that arrive; one frame comes only after the one before was answered."""

    def __init__(self) -> None:
        self._start = bytearray(_SMALL)
        self._begin()

    def _begin(self) -> None:
        self._frame, self._filled = self._start, 0

    def room(self) -> memoryview:
        """The buffer for the next bytes."""
        return memoryview(self._frame)[self._filled :]

    def take(self, count: int) -> Any:
        """So many bytes were put there; gives the value, or None until it is complete.

        Raises:
            pickle.UnpicklingError, or another error of a frame that does not come from `encode`.
        """
        self._filled += count
        if self._filled < _HEAD.size:
            return None
        length, parts = _HEAD.unpack_from(self._frame)
        if self._filled > length:
            raise pickle.UnpicklingError(f"{self._filled} bytes came for a frame of {length}")
        if self._frame is self._start:
            self._frame = bytearray(length)
            self._frame[: self._filled] = memoryview(self._start)[: self._filled]
        if self._filled < length:
            return None
        frame = memoryview(self._frame)
        self._begin()
        return _decode(frame, parts)


def _decode(frame: memoryview, count: int) -> Any:
    pickled, *buffers = _parts(frame, count)
    return _Reader(io.BytesIO(pickled), buffers=buffers).load()


def _parts(frame: memoryview, count: int) -> Iterator[memoryview]:
    end = _HEAD.size + _NUMBER.size * count
    for (length,) in _NUMBER.iter_unpack(frame[_HEAD.size : end]):
        begin = end + _gap(end)
        end = begin + length
        yield frame[begin:end]


def receive(connection: socket.socket, assembler: Assembler) -> Any:
    """The next value. Raises EOFError at the end."""
    while True:
        got = connection.recv_into(assembler.room())
        if not got:
            raise EOFError
        if (value := assembler.take(got)) is not None:
            return value


def send(connection: socket.socket, value: object) -> None:
    """Return when the whole frame is written."""
    for piece in encode(value):
        connection.sendall(piece)
