"""Limits of what a spec may ask for, beside those that the CRDs' schemas set."""

from __future__ import annotations

PARTITIONS_MAX = 10_000
CACHE_MIB_MAX = 1 << 40
DEFAULT_CACHE_MIB = 102_400
"""JuiceFS's own default; its free-space-ratio protects small disks."""
THREADS_MAX = 1024
SYNC_THREADS = 10
"""Default of a sync."""
WARMUP_THREADS = 50
"""Default of a warmup."""
BANDWIDTH_MAX = 10_000_000
"""Mbit per second."""
STRATEGIES = ("sequence", "random")
"""Of a warmup, the default first."""
SOURCE_MAX = 4096
"""Characters of a source's address."""
PATH_MAX = 4096
"""Bytes of a path."""
LIST_MAX_BYTES = 512 * 1024
"""All paths of a run together, which travel in one record of at most 1 MiB."""
MESSAGE_MAX = 1024
"""Characters of a condition's message."""
