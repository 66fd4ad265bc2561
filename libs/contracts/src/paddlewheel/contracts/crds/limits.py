"""Limits and defaults of specs that CRDs and services share."""

from __future__ import annotations

REPLICAS = 10_000
"""Pods of one role, at most. A larger number is most likely a mistake, and rendering so many pods at once
would need too much memory."""
VARIABLE_BYTES = 128 * 1024
"""Bytes of an environment variable, at most: its name, '=', its value and the final NUL. Linux does not start
a program with a longer one (MAX_ARG_STRLEN)."""
PARTITIONS = 1_000
"""Cache nodes of one set, at most. The state of a run lists all of them, and each of them reads that
state."""
PATH_LENGTH = 4096
"""Characters of a path or of a source's address, at most. It is Linux's limit for paths."""
KEY_LENGTH = 1024
"""Bytes of an object's key in S3, at most."""
PATHS = 4096
"""Paths of one operation, at most: as many as fit into one command line of the original operator (128
KiB)."""
LABEL_LENGTH = 63
"""Characters of a label's value, of a Service's name or of a pod's host name, at most."""
SERVICE_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""Pattern of a Service's name. The name of an object that gets a Service must match it, too."""
SYNC_THREADS = 10
"""Threads of a sync on each node, by default."""
WARMUP_THREADS = 50
"""Threads of a warmup on each node, by default."""
EXTENSIONS, EXTENSION_LENGTH = 64, 255
"""Extensions of a sampler's files, and characters of each, at most. A file's name has 255 bytes."""
STRATEGIES = ("sequence", "random", "sampler")
"""Strategies of a warmup, the default first."""
MEDIUM_TYPES = ("MEM", "SSD", "HDD")
CACHE_ENGINES = ("juicefs",)
"""Cache engines, the default first."""

NODES_WITH_WRITES = 64
"""Nodes that a set's status lists in `nodesWithWrites`, at most."""
