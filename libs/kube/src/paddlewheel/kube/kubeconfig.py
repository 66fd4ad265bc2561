"""The files that KUBECONFIG names. This module imports no client, so that commands start fast."""

from __future__ import annotations

import os
from pathlib import Path


def present_files(paths: str) -> list[Path]:
    """The existing files of a KUBECONFIG value. Missing files are ignored, as kubectl does."""
    files = [Path(part).absolute() for part in paths.split(os.pathsep) if part]
    return [file for file in files if file.exists()]
