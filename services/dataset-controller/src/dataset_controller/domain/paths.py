"""Paths that users write: below the data set's root, or directories on the node.

They are passed in argument lists and to file calls, never through a shell. Below the data set's root only
what would leave it is refused. On the node only what the operator has named is allowed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.limits import LIST_MAX_BYTES
from paddlewheel.contracts.addresses import InvalidAddress, local_path
from paddlewheel.contracts.crds.limits import PATH_LENGTH
from paddlewheel.contracts.places import CACHE_ROOTS, is_of_the_node, root_above
from paddlewheel.contracts.reasons import Reason

_CACHE_PATH = re.compile(r"[\w./@+=~ -]+")
"""The engine would expand `*`, `?` and `[`, and split at `:` and `,`."""


@dataclass(frozen=True)
class Places:
    """Directories of the nodes that the operator lends to data sets.

    Args:
        local_sources: sources of scheme `file` may be these or below them.
        cache_roots: caches may be below these; the first is where they are when a set names none.
    """

    local_sources: tuple[str, ...] = ()
    cache_roots: tuple[str, ...] = CACHE_ROOTS


DEFAULT_PLACES = Places()


@dataclass(frozen=True)
class CacheDirectory:
    """One directory of a cache.

    Args:
        named: as the manifest names it.
        root: the operator's, which contains it.
        path: the set's own, below `named`: sets that name the same directory share nothing.
        parts: directories that hold equal shares of the cache: `path` itself, and others below it.
    """

    named: str
    root: str
    path: str
    parts: int = 1

    @property
    def paths(self) -> tuple[str, ...]:
        """What the client is given. The first stays when there are more: a cache that grows is kept. It has
        what it caches in a directory that is named after the volume, so the others can be below it."""
        return (self.path, *(f"{self.path}/{i}" for i in range(1, self.parts)))


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


def local_source(uri: str, field: str, places: Places) -> None:
    """Check a source of scheme `file`; every other one passes.

    Raises:
        Invalid: it is not below a directory that the operator has named.
    """
    try:
        path = local_path(uri, field)
    except InvalidAddress as error:
        raise Invalid(Reason.SOURCE_NOT_ALLOWED, str(error)) from error
    if path is None or root_above(path, places.local_sources):
        return
    if not places.local_sources:
        raise Invalid(
            Reason.SOURCE_NOT_ALLOWED,
            f"{field}: file:// sources are off; use an object store, or have the operator name a directory in"
            " the chart's datasetController.localSources",
        )
    raise Invalid(
        Reason.SOURCE_NOT_ALLOWED,
        f"{field}: {path!r} is not below {' or '.join(places.local_sources)}; move the data there, or have"
        " the operator add its directory to the chart's datasetController.localSources",
    )


def cache_directory(path: str, field: str) -> str:
    """An absolute, normalized path on the node.

    Raises:
        Invalid: relative, or a directory of the node's own system.
    """
    _check_text(path, field)
    if not path.startswith("/"):
        raise Invalid(Reason.INVALID_SPEC, f"{field}: {path!r} is not absolute; start it with '/'")
    if ".." in path.split("/"):
        raise Invalid(Reason.INVALID_SPEC, f"{field}: {path!r} contains '..'; write the plain path")
    if not _CACHE_PATH.fullmatch(path):
        raise Invalid(
            Reason.INVALID_SPEC, f"{field}: {path!r} has other characters than letters, digits and ./@+=~ -"
        )
    clean = posixpath.normpath("/" + path.lstrip("/"))
    if is_of_the_node(clean):
        raise Invalid(Reason.INVALID_SPEC, f"{field}: {path!r} belongs to the node; name another directory")
    return clean


def own_cache(path: str, field: str, places: Places, owner: str) -> CacheDirectory:
    """The set's own directory below a cache directory that its manifest names.

    Args:
        owner: `<namespace>/<uid>` of the set.

    Raises:
        Invalid: as `cache_directory`, or it is not below a root that the operator has named.
    """
    named = cache_directory(path, field)
    root = root_above(named, places.cache_roots)
    if root is None:
        raise Invalid(
            Reason.CACHE_PATH_NOT_ALLOWED,
            f"{field}: {named!r} is not below {' or '.join(places.cache_roots)}; name a directory there, or"
            " have the operator add its root to the chart's datasetController.cacheRoots",
        )
    return CacheDirectory(named, root, f"{named}/{owner}")


def _check_text(path: str, field: str) -> None:
    if "\0" in path:
        raise Invalid(Reason.INVALID_SPEC, f"{field}: a path cannot contain a zero byte")
    if len(path.encode()) > PATH_LENGTH:
        raise Invalid(Reason.INVALID_SPEC, f"{field}: the path is longer than {PATH_LENGTH} bytes")
