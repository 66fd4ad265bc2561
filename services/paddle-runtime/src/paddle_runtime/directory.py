"""A model's files in a directory, and their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from paddle_runtime.domain.files import ModelFault, check_path, manifest_digest


def directory_digest(directory: Path) -> str:
    """The digest of a model on disk; see `manifest_digest`. Raises ModelFault, OSError."""
    return manifest_digest({path: _sha256(directory / path) for path in file_names(directory)})


def file_names(directory: Path) -> list[str]:
    """The files that count, with paths relative to the directory; links are followed, as by `find -L`.

    Raises:
        ModelFault: there is no such directory, or a link leads out of it or into itself.
    """
    if not directory.is_dir():
        raise ModelFault(
            "NoModel", f"{directory} is not a directory: check PADDLE_RUNTIME_MODEL_URI and the mount"
        )
    found = _visible(directory, (directory.resolve(),))
    return sorted(check_path(path.relative_to(directory).as_posix()) for path in found)


def _visible(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """`above`: the folders on the way here, without links, the model's own first."""
    for path in _readable(folder):
        if path.is_dir():
            yield from _visible(path, (*above, _inside(path, above)))
        elif path.is_file():
            _inside(path, above)
            yield path


def _readable(folder: Path) -> list[Path]:
    """The names that are not hidden; empty for a folder that may not be read, such as lost+found."""
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except PermissionError:
        return []


def _inside(path: Path, above: tuple[Path, ...]) -> Path:
    """The target of a link, which could make any file that this process can read part of a model."""
    found = path.resolve()
    if found in above or not found.is_relative_to(above[0]):
        raise ModelFault(
            "InvalidLink", f"{path} is a link to {found}: put the file itself into the directory"
        )
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
