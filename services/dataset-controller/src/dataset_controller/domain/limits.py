"""Limits of this service alone; those that the CRDs share are in `paddlewheel.contracts.crds.limits`."""

from __future__ import annotations

CACHE_MIB_MAX = 1 << 40
DEFAULT_CACHE_MIB = 102_400
"""JuiceFS's own default; its free-space-ratio protects small disks."""
THREADS_MAX = 1024
BANDWIDTH_MAX = 10_000_000
"""Mbit per second."""
LIST_MAX_BYTES = 512 * 1024
"""All paths of a run together, which travel in one record of at most 1 MiB."""
MESSAGE_MAX = 1024
"""Characters of a condition's message."""
INT32_MAX = 2**31 - 1
