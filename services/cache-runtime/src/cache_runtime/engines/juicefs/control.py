"""The protocol of the control file, which the JuiceFS client itself uses for warmup, check and info (1.4).

A request is `command u32, length u32, body`; an answer is a sequence of progress frames (0xFE, two u64), then
one data frame (0xFF, length u32, JSON) or one byte of errno. Files are named by inode, so no name needs
quoting, and counts are exact bytes, where the command line rounds them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from cache_runtime.domain.model import CacheReport, CacheUse, TreeSize

FILL_CACHE = 1004
INFO = 1005
ROOT_INODE = 1
TRASH_INODE = 0x7FFFFFFF10000000
"""Directory of the deleted files that JuiceFS still keeps, and whose blocks may be in the cache."""
INTERNAL_INODES = range(0x7FFFFFFF00000000, 1 << 64)
"""Those of JuiceFS's own files: `.stats`, `.config`, `.trash` and others."""
CACHED_BLOCK_OVERHEAD = 4096
"""Bytes that `juicefs_blockcache_bytes` counts on top of each block."""

_PROGRESS, _DATA = 0xFE, 0xFF


class CacheAction(IntEnum):
    """What FILL_CACHE does with each file's blocks."""

    WARM = 0
    EVICT = 1
    CHECK = 2


@dataclass(frozen=True)
class Answer:
    """A complete answer: JSON data, or an errno."""

    data: dict[str, Any]
    errno: int = 0


def cache_request(action: CacheAction, inodes: Sequence[int], threads: int) -> bytes:
    """FILL_CACHE for these files (directories: all below)."""
    paths = "\n".join(f"inode:{inode}" for inode in inodes).encode()
    body = struct.pack(">I", len(paths)) + paths + struct.pack(">HBB", max(1, threads), 0, action)
    return struct.pack(">II", FILL_CACHE, len(body)) + body


def info_request(inode: int) -> bytes:
    """INFO, recursive, from directory statistics: costs a lookup for each directory, not for each file."""
    body = struct.pack(">QBBB", inode, 1, 0, 0)
    return struct.pack(">II", INFO, len(body)) + body


def parse_answer(buffer: bytes) -> Answer | None:
    """The answer in the data read so far; None while it is incomplete."""
    offset = 0
    while offset < len(buffer) and buffer[offset] == _PROGRESS:
        if offset + 17 > len(buffer):
            return None
        offset += 17
    rest = buffer[offset:]
    if not rest:
        return None
    if rest[0] != _DATA:
        return Answer({}, rest[0])
    if len(rest) < 5 or len(rest) < 5 + (size := int.from_bytes(rest[1:5], "big")):
        return None
    return Answer(json.loads(rest[5 : 5 + size]))


def cache_report(answer: Answer) -> CacheReport:
    """Read the answer to `cache_request`; `missing` is set by CHECK only."""
    data = answer.data
    return CacheReport(int(data["FileCount"]), int(data["TotalBytes"]), int(data["MissBytes"]))


def tree_size(answer: Answer) -> TreeSize:
    """Read the answer to `info_request`."""
    summary = answer.data["Summary"]
    return TreeSize(int(summary["Files"]), int(summary["Length"]))


def cache_use(stats: str) -> CacheUse:
    """From the text of `.stats`; bytes are of payload."""
    values = dict(line.split(" ", 1) for line in stats.splitlines() if " " in line)

    def count(name: str) -> int:
        return int(float(values.get(f"juicefs_blockcache_{name}", 0)))

    cached = max(0, count("bytes") - count("blocks") * CACHED_BLOCK_OVERHEAD)
    return CacheUse(cached, hit=count("hit_bytes"), miss=count("miss_bytes"))
