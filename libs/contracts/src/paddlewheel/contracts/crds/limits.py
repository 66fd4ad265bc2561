"""Limits and defaults of specs that CRDs and services share."""

from __future__ import annotations

REPLICAS = 10_000
"""Pods of one role. More would be a slip of the pen, and what renders them needs memory for all at once."""
VARIABLE_BYTES = 128 * 1024
"""Bytes of an environment variable with its name, '=' and the final NUL. Linux starts no program with a
longer one (MAX_ARG_STRLEN)."""
PARTITIONS = 1_000
"""Cache nodes of one set. Each is listed in the state of every run, which all of them read."""
PATH_LENGTH = 4096
"""Characters of a path, as Linux limits it, and of a source's address."""
KEY_LENGTH = 1024
"""Bytes of an object's key in S3."""
PATHS = 4096
"""Paths of one operation: as many as one command line of the original could carry (128 KiB)."""
LABEL_LENGTH = 63
"""Characters of a label's value, of a Service's name and of a pod's host name."""
SERVICE_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""The names of Services. Names of objects from which those are made begin in the same way and have no '.'."""
SYNC_THREADS = 10
"""Default of a sync."""
WARMUP_THREADS = 50
"""Default of a warmup."""
STRATEGIES = ("sequence", "random", "sampler")
"""Strategies of a warmup, the default first."""
MEDIUM_TYPES = ("MEM", "SSD", "HDD")
CACHE_ENGINES = ("juicefs",)
"""Cache engines, the default first."""

NODES_WITH_WRITES = 64
"""Nodes with writes that no store has, of those that are recorded."""
