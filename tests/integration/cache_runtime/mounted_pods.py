"""Processes that mount a directory of the node as the kubelet and runc do for a pod."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class MountedPod:
    """A container with a directory of the node, with propagation HostToContainer."""

    def __init__(self, source: Path, inside: Path) -> None:
        self._inside = inside
        inside.mkdir()
        script = 'mount --rbind "$0" "$1" && mount --make-rslave "$1" && echo up && exec sleep infinity'
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script, str(source), str(inside)],
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n"

    def run(self, *command: str) -> tuple[int, str]:
        """Exit code and output of a command in the container; `{}` in it is the mounted directory."""
        words = [word.replace("{}", str(self._inside)) for word in command]
        enter = ["nsenter", "--mount", "--target", str(self.process.pid), "--", *words]
        done = subprocess.run(enter, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr


@contextmanager
def running_pod(source: Path, inside: Path) -> Iterator[MountedPod]:
    """A pod that ends with the context."""
    pod = MountedPod(source, inside)
    try:
        yield pod
    finally:
        pod.process.kill()
        pod.process.communicate(timeout=60)


def share_mounts(directory: Path) -> None:
    """Create a directory with shared propagation, as on a node: containers see later mounts in it."""
    if not directory.exists():
        directory.mkdir()
        subprocess.run(["mount", "--bind", str(directory), str(directory)], check=True)
        subprocess.run(["mount", "--make-shared", str(directory)], check=True)


def unmount_below(directory: Path) -> None:
    """Remove all mounts below the directory, dead or alive."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        if (path := line.split(" ")[4]).startswith(f"{directory}/"):
            subprocess.run(["umount", "-l", path], check=False, capture_output=True)
