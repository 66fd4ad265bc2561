"""Directories of a node that users may name: only below roots that the operator has named.

Pure text; that no symbolic link leads out is seen to where the directory is opened.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

CACHE_ROOT = "/var/lib/paddlewheel/cache"
CACHE_ROOTS = (CACHE_ROOT, "/dev/shm", "/cache", "/ssd")  # noqa: S108 - directories of nodes, not temporary files
"""Where caches may be unless the operator says otherwise: the default, and what published manifests name."""
STATE_TREES = ("/etc/paddlewheel", "/run/paddlewheel", "/var/lib/paddlewheel/mnt", "/var/run")
"""Keys and state of the agents, and what they mount: nothing that users name may lie there."""
_TOP = "bin dev home lib lib64 opt root run sbin srv tmp var var/lib"
_SYSTEM = frozenset({"/", *(f"/{name}" for name in _TOP.split())})
_SYSTEM_TREES = ("/boot", "/etc", "/proc", "/sys", "/usr", *STATE_TREES)


def is_normalized(path: str) -> bool:
    """Absolute, without `..`, `.`, double or trailing slashes and NUL."""
    return (
        path.startswith("/")
        and not path.startswith("//")
        and posixpath.normpath(path) == path
        and "\0" not in path
    )


def is_inside(path: str, root: str) -> bool:
    """Whether normalized `path` is `root` or below it, by whole names."""
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def root_above(path: str, roots: Iterable[str]) -> str | None:
    """The innermost of `roots` that contains the normalized path, None when none does."""
    return max((root for root in roots if is_inside(path, root)), key=len, default=None)


def is_of_the_node(path: str) -> bool:
    """Whether the normalized path belongs to the node's own system or to the agents."""
    return path in _SYSTEM or any(is_inside(path, tree) for tree in _SYSTEM_TREES)


def checked_root(path: str) -> str:
    """A root as an operator may name it. Raises ValueError, which names the remedy."""
    if not is_normalized(path) or ":" in path or is_of_the_node(path):
        raise ValueError(
            f"{path!r}: must be an absolute directory without '..', ':' and trailing '/', and none of the"
            " node's own system, e.g. /srv/datasets"
        )
    return path
