"""buildah with a private store: builds, exports and removes images."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddlewheel.devcluster.images.command import run_apart


@dataclass(frozen=True)
class BuildJob:
    """One image to build.

    Args:
        reference: name and tag in the store.
        args: build arguments.
        secrets: id -> file available only during the build.
        log: file to which the program's output is appended.
    """

    reference: str
    dockerfile: Path
    context: Path
    log: Path
    args: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Path] = field(default_factory=dict)

    def flags(self) -> tuple[str, ...]:
        """Build arguments and secrets as command-line options."""
        args = (("--build-arg", f"{key}={value}") for key, value in self.args.items())
        secrets = (("--secret", f"id={key},src={path}") for key, path in self.secrets.items())
        return tuple(part for pair in (*args, *secrets) for part in pair)


@dataclass(frozen=True)
class Store:
    """A private image store in one folder, which may be deleted while no build runs."""

    folder: Path

    def recover(self) -> None:
        """Clean up after a killed build: mount counts, unfinished containers, temporary files.

        Also forgets which network program the first build found: it may have been uninstalled since.
        """
        (self.folder / "storage" / "defaultNetworkBackend").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        shutil.rmtree(self._tmp, ignore_errors=True)
        if (self.folder / "storage").exists():
            self._buildah(self._log, "rm", "--all")

    def has(self, reference: str) -> bool:
        """Whether the store has an image with exactly this name and tag."""
        return reference in self.references()

    def references(self) -> list[str]:
        """Name and tag of every image in the store."""
        return self._buildah(self._log, "images", "--format", "{{.Name}}:{{.Tag}}").split()

    def build(self, job: BuildJob) -> None:
        """Build an image as one layer on top of its base."""
        fixed = (
            "bud",
            "--isolation",
            "chroot",
            "--layers=false",
            "--format",
            "docker",
            "--tag",
            job.reference,
        )
        self._buildah(job.log, *fixed, *job.flags(), "--file", str(job.dockerfile), str(job.context))

    def export(self, reference: str, name: str, target: Path, log: Path) -> None:
        """Write an uncompressed archive of the image, tagged `name` and `reference`."""
        self._buildah(
            log, "push", "--quiet", "--disable-compression", reference, f"docker-archive:{target}:{name}"
        )

    def remove(self, reference: str, log: Path) -> None:
        """Remove an image; layers of other images are kept."""
        self._buildah(log, "rmi", reference)

    @property
    def _tmp(self) -> Path:
        return self.folder / "tmp"

    @property
    def _log(self) -> Path:
        return self.folder / "store.log"

    def _buildah(self, log: Path, *arguments: str) -> str:
        self._tmp.mkdir(parents=True, exist_ok=True)
        store = ("--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run"))
        return run_apart(("buildah", *store, *arguments), log, {"TMPDIR": str(self._tmp)})
