"""Content hashes of images: equal inputs have equal hashes, so nothing is built twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.images.catalog import BASE, CATALOG, ImageSpec
from paddlewheel.devcluster.images.rootfs import rootfs_recipe

LENGTH = 12
"""Hex digits of a hash in archive names and tags."""

_IGNORED_FOLDERS = frozenset({"__pycache__"})
_IGNORED_SUFFIXES = frozenset({".pyc"})


def fingerprint(name: str, repository: Path) -> str:
    """Hash of everything that determines the image's content, including its parents.

    Raises:
        Permanent: no such image, or an input is missing from the repository.
    """
    spec = _spec(name)
    digest = hashlib.sha256()
    for path in _input_files(spec, repository):
        _add_file(digest, path, repository)
    if name == BASE:
        digest.update("\0".join(rootfs_recipe()).encode())
    for parent in sorted(spec.parents.values()):
        digest.update(fingerprint(parent, repository).encode())
    return digest.hexdigest()[:LENGTH]


def _spec(name: str) -> ImageSpec:
    spec = CATALOG.get(name)
    if spec is None:
        raise Permanent("UnknownImage", f"no image {name!r}; there are: {', '.join(sorted(CATALOG))}")
    return spec


def _input_files(spec: ImageSpec, repository: Path) -> Iterator[Path]:
    for relative in (spec.dockerfile, *spec.inputs):
        path = repository / relative
        if not path.exists():
            raise Permanent(
                "MissingInput", f"image {spec.name} needs {relative}, which is missing in {repository}"
            )
        yield from [path] if path.is_file() else _files_below(path)


def _files_below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        ignored = path.suffix in _IGNORED_SUFFIXES or _IGNORED_FOLDERS.intersection(path.parts)
        if path.is_file() and not ignored:
            yield path


def _add_file(digest: hashlib._Hash, path: Path, repository: Path) -> None:
    content = path.read_bytes()
    digest.update(f"{path.relative_to(repository)}\0{len(content)}\0".encode())
    digest.update(content)
