"""Paths that users write: below the data set's root, or cache directories on the node.

They are passed in argument lists and to file calls, never through a shell, so only what would leave its root
is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.limits import LIST_MAX_BYTES
from dataset_controller.domain.names import MOUNT_ROOT
from paddlewheel.contracts.crds.limits import PATH_LENGTH
from paddlewheel.contracts.reasons import Reason

_TOP = "bin dev home lib lib64 opt root run sbin srv tmp var var/lib"
_SYSTEM = frozenset({"/", *(f"/{name}" for name in _TOP.split())})
_SYSTEM_TREES = ("/boot", "/etc", "/proc", "/sys", "/usr", MOUNT_ROOT)


def inside(path: str, field: str) -> str:
    """The path relative to the set's root, "" for the root itself.

    Raises:
        Invalid: it leaves the root, or no file system can store it.
    """
    _check_text(path, field)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Invalid(Reason.INVALID_SPEC, f"{field}: {path!r} leaves the data set; write it without '..'")
    return "/".join(parts)


def all_inside(paths: Iterable[str], field: str) -> list[str]:
    """`inside` for a list, which must fit into one record."""
    clean = [inside(path, f"{field}[{i}]") for i, path in enumerate(paths)]
    if sum(len(path.encode()) + 8 for path in clean) > LIST_MAX_BYTES:
        raise Invalid(
            Reason.INVALID_SPEC,
            f"{field}: more than {LIST_MAX_BYTES // 1024} KiB of paths; name a directory instead",
        )
    return clean


def cache_directory(path: str, field: str) -> str:
    """An absolute, normalized path on the node that a cache may use.

    Raises:
        Invalid: relative, or a directory of the node's own system.
    """
    _check_text(path, field)
    if not path.startswith("/"):
        raise Invalid(Reason.INVALID_SPEC, f"{field}: {path!r} is not absolute; start it with '/'")
    if ".." in path.split("/"):
        raise Invalid(Reason.INVALID_SPEC, f"{field}: {path!r} contains '..'; write the plain path")
    clean = posixpath.normpath("/" + path.lstrip("/"))
    if clean in _SYSTEM or any(clean == tree or clean.startswith(f"{tree}/") for tree in _SYSTEM_TREES):
        raise Invalid(Reason.INVALID_SPEC, f"{field}: {path!r} belongs to the node; name another directory")
    return clean


def _check_text(path: str, field: str) -> None:
    if "\0" in path:
        raise Invalid(Reason.INVALID_SPEC, f"{field}: a path cannot contain a zero byte")
    if len(path.encode()) > PATH_LENGTH:
        raise Invalid(Reason.INVALID_SPEC, f"{field}: the path is longer than {PATH_LENGTH} bytes")
