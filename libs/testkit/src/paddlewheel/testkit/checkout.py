"""Copies of this checkout, to run commands in that write into it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def copy_checkout(source: Path, target: Path) -> Path:
    """Copy the files that are under version control, or would be; returns `target`."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=source,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (source / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name, follow_symlinks=False)
    return target
