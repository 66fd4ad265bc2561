"""Files that others read while they are written."""

from __future__ import annotations

from pathlib import Path


def replace_file(file: Path, content: bytes, mode: int = 0o666) -> None:
    """Write the file in one step: a reader finds the old content or the new one, and no part of either.

    Args:
        mode: permissions of the new file, less the umask.
    """
    written = file.with_suffix(".new")
    written.touch(mode)
    written.write_bytes(content)
    written.replace(file)
