"""The Debian root file system of every image, created by mmdebstrap from packages alone."""

from __future__ import annotations

import os
from pathlib import Path

SUITE = "bookworm"
PACKAGES = ("usr-is-merged", "python3", "ca-certificates")
MIRROR_VARIABLE = "PADDLEWHEEL_DEBIAN_MIRROR"
"""URL of a Debian mirror that replaces mmdebstrap's default."""

_UNUSED = ("man", "locale", "doc", "info", "bash-completion", "lintian")


def rootfs_recipe() -> tuple[str, ...]:
    """mmdebstrap's arguments up to the suite; part of the base image's content hash.

    The merged-usr hook with usr-is-merged avoids the package usrmerge, which depends on 50 MB of Perl.
    """
    return (
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        "--format=tar",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=Acquire::Languages "none"',
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _UNUSED),
        SUITE,
    )


def rootfs_command(target: Path) -> tuple[str, ...]:
    """The command that writes the root file system to `target` as an uncompressed tar file."""
    mirror = os.environ.get(MIRROR_VARIABLE)
    return ("mmdebstrap", *rootfs_recipe(), str(target), *([mirror] if mirror else []))
