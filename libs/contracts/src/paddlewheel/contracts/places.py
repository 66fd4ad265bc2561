"""Checks of node directories in manifests: they must be below roots that the operator allows.

The checks read only the text of a path. Code that opens a directory checks that no symbolic link leads out of
it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

CACHE_ROOT = "/var/lib/paddlewheel/cache"
CACHE_ROOTS = (CACHE_ROOT, "/dev/shm", "/cache", "/ssd")  # noqa: S108 - directories of nodes, not temporary files
"""The default roots of caches: our own, and those in manifests for the original operator."""
STATE_TREES = ("/etc/paddlewheel", "/run/paddlewheel", "/var/lib/paddlewheel/mnt", "/var/run")
"""Directories with keys, state and mounts of the agents. Users cannot use any directory below them."""
_TOP = "bin dev home lib lib64 opt root run sbin srv tmp var var/lib"
_SYSTEM = frozenset({"/", *(f"/{name}" for name in _TOP.split())})
_SYSTEM_TREES = ("/boot", "/etc", "/proc", "/sys", "/usr", *STATE_TREES)


def is_normalized(path: str) -> bool:
    """Whether the path is absolute and has no `..`, no `.`, no double or trailing slashes and no NUL."""
    return (
        path.startswith("/")
        and not path.startswith("//")
        and posixpath.normpath(path) == path
        and "\0" not in path
    )


def is_inside(path: str, root: str) -> bool:
    """Whether the normalized path is `root` or below it. `/cache2` is not below `/cache`."""
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def root_above(path: str, roots: Iterable[str]) -> str | None:
    """The innermost of `roots` that contains the normalized path; None if there is none."""
    return max((root for root in roots if is_inside(path, root)), key=len, default=None)


def is_of_the_node(path: str) -> bool:
    """Whether the normalized path belongs to the node's operating system or to our agents."""
    return path in _SYSTEM or any(is_inside(path, tree) for tree in _SYSTEM_TREES)


def checked_root(path: str) -> str:
    """Check a root in the operator's settings. The message of the ValueError describes what to do."""
    if not is_normalized(path) or ":" in path or is_of_the_node(path):
        raise ValueError(
            f"{path!r}: must be an absolute directory without '..', ':' and trailing '/', and not a system"
            " directory of the node; for example /srv/datasets"
        )
    return path
