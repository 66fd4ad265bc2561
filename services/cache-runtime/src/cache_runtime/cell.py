"""The root directory of clients that copy: in it there is nothing of the node, and no key of this pod.

Where a volume has its data is in a database of its author, who may change it while a client copies, for
example to a directory: the client would then write and read there, following links, with the rights of this
privileged process. No check can be fast enough; in the cell there is nothing to find.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from cache_runtime import confine
from paddlewheel.core.errors import Retry

_NEEDED = """
    /etc/resolv.conf /etc/hosts /etc/nsswitch.conf /etc/passwd /etc/group /etc/localtime
    /etc/ssl/certs/ca-certificates.crt /proc/sys/kernel/osrelease
"""
"""By these the client finds hosts, trusts stores and names owners; without the last one it does not start."""


class Cell:
    """A directory of this process. What a client writes there by mistake goes with the pod."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def tmp(self) -> Path:
        """For files of both sides."""
        return self.path / "tmp"

    @property
    def environment(self) -> dict[str, str]:
        """Places that the client may write to."""
        return dict.fromkeys(("HOME", "TMPDIR"), self.inside(self.tmp))

    def sweep(self) -> None:
        """Remove what a process that was killed has left: the directory is in memory, and outlives
        containers. Only before anything is copied. Blocks."""
        shutil.rmtree(self.tmp, ignore_errors=True)

    def inside(self, path: Path | str) -> str:
        """How the client names a path in the cell."""
        return f"/{Path(path).relative_to(self.path)}"

    def prepare(self) -> None:
        """Bring what the client needs up to date. Blocks.

        Raises:
            Retry: `CellFailed`; there is no room, or the directory cannot be written.
        """
        try:
            self._prepare()
        except OSError as error:
            raise self.failed(error) from error

    def failed(self, error: OSError) -> Retry:
        """Of what cannot be made in it."""
        text = (
            f"the directory in which copies run cannot be made: {error.filename or self.path}:"
            f" {error.strerror}; it is made anew when the runtime pod is deleted"
        )
        return Retry("CellFailed", text)

    def _prepare(self) -> None:
        for directory in (self.tmp, self.path / "dev"):
            directory.mkdir(parents=True, exist_ok=True)
        # The client opens it when it starts, and a plain file is enough.
        (self.path / "dev" / "null").touch()
        certificates = os.environ.get("SSL_CERT_FILE", "")
        for name in (*_NEEDED.split(), *([certificates] if certificates.startswith("/") else ())):
            with suppress(FileNotFoundError):
                _copy(Path(name), self.path / os.path.normpath(name).lstrip("/"))

    def command(self, program: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """The command line that runs a program in the cell."""
        found = shutil.which(program) or program
        return (sys.executable, "-I", "-S", confine.__file__, str(self.path), found, *arguments)


def _copy(source: Path, target: Path) -> None:
    """Other clients may be reading the target: it is replaced at once, or left as it is."""
    content = source.read_bytes()
    if target.exists() and target.read_bytes() == content:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as new:
        try:
            new.write(content)
            new.flush()
        except OSError:
            Path(new.name).unlink()
            raise
    Path(new.name).chmod(0o644)
    Path(new.name).replace(target)
