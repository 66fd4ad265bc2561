"""Which files a KUBECONFIG names; imports no client, so that commands start fast."""

from __future__ import annotations

import os
from pathlib import Path


def present_files(paths: str) -> list[Path]:
    """The files of a KUBECONFIG that exist; the others are ignored, as by kubectl."""
    files = [Path(part).absolute() for part in paths.split(os.pathsep) if part]
    return [file for file in files if file.exists()]
