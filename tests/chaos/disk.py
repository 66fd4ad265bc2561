"""A disk that loses its write cache with the power: only what was written before the last flush remains.

Killing QEMU is not enough for that: what the guest wrote without a flush, which no disk promises to keep, is
still in the host's page cache. So QEMU logs writes and flushes (driver `blklogwrites`, with the format of
dm-log-writes in Linux), and the next start finds what the log says.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from paddlewheel.devcluster.commands import run

SIZE = 4 << 30
"""Bytes, of which the host keeps what is written; the chart's volume has as many."""
_SUPER = struct.Struct("<QQQL")
"""Magic number, version, number of entries, size of a sector."""
_ENTRY = struct.Struct("<QQQQ")
"""First sector, number of sectors, flags, length of a mark."""
_MAGIC = 0x6A736677736872
_FLUSH = 1
_DISCARD = 4


@dataclass(frozen=True)
class Disk:
    """Its files lie in `folder`."""

    folder: Path

    def make(self) -> None:
        """An empty ext4 filesystem."""
        self.folder.mkdir(parents=True)
        with self._durable.open("wb") as image:
            image.truncate(SIZE)
        run(("mke2fs", "-q", "-t", "ext4", str(self._durable)))

    def plug_in(self) -> list[str]:
        """What QEMU is started with; what was not flushed the last time is lost."""
        self._keep_flushed()
        run(("cp", "--sparse=always", str(self._durable), str(self._written)))
        self._log.write_bytes(b"")
        return [
            "-blockdev", f"driver=file,node-name=written,filename={self._written}",
            "-blockdev", f"driver=file,node-name=log,filename={self._log}",
            "-blockdev", "driver=blklogwrites,node-name=disk,file=written,log=log",
            "-device", "virtio-blk-pci,drive=disk",
        ]  # fmt: skip

    def has(self, contents: Collection[bytes]) -> bool:
        """All of them were flushed since the disk was plugged in."""
        with self._log.open("rb") as log:
            written = b"".join(content for _, content in flushed(log))
        return all(content in written for content in contents)

    def _keep_flushed(self) -> None:
        if not self._log.exists():
            return
        with self._log.open("rb") as log, self._durable.open("r+b") as image:
            for offset, content in flushed(log):
                image.seek(offset)
                image.write(content)

    @property
    def _durable(self) -> Path:
        return self.folder / "durable.img"

    @property
    def _written(self) -> Path:
        return self.folder / "written.img"

    @property
    def _log(self) -> Path:
        return self.folder / "writes.log"


def flushed(log: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Offset and content of the writes before the last flush, oldest first."""
    pending: list[tuple[int, bytes]] = []
    for offset, content, flags in _entries(log):
        if flags & _FLUSH:
            yield from pending
            pending = []
        if content:
            pending.append((offset, content))


def _entries(log: BinaryIO) -> Iterator[tuple[int, bytes, int]]:
    """Each takes a sector, and those of its content. QEMU counts them in the first sector at every flush."""
    head = log.read(_SUPER.size)
    if len(head) < _SUPER.size:
        return
    magic, _, count, sector = _SUPER.unpack(head)
    assert magic == _MAGIC, "no log of writes"
    log.seek(sector)
    for _ in range(count):
        start, sectors, flags, _ = _ENTRY.unpack(log.read(sector)[: _ENTRY.size])
        yield start * sector, b"" if flags & _DISCARD else log.read(sectors * sector), flags
