"""Starts, finds and stops a cluster's own network, mount and PID namespaces.

No pid is recorded: a cluster is found by its plan's path in the command line of its process 1, so a stale
pid can never be mistaken for it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.commands import CLEAN_ENVIRONMENT

_SUPERVISOR = "paddlewheel.devcluster.supervisor"
_START_TIMEOUT_SECONDS = 10.0
_END_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Namespace:
    """Two host pids: `outer` holds the namespaces, `init` is process 1 in them."""

    outer: int
    init: int

    def enter(self, *command: str) -> tuple[str, ...]:
        """The command line that runs this command inside the namespaces."""
        return ("nsenter", "--target", str(self.init), "--mount", "--net", "--pid", "--", *command)


def supervised(plan: Path, *, network: str = "") -> tuple[str, ...]:
    """The command that runs a plan in new mount, PID and network namespaces.

    Args:
        network: path of an existing network namespace to use instead of a new one.
    """
    enter = ("nsenter", f"--net={network}") if network else ()
    fresh = ("--fork", "--kill-child", "--pid", "--mount-proc", "--mount", *(() if network else ("--net",)))
    return (*enter, "unshare", *fresh, sys.executable, "-m", _SUPERVISOR, str(plan))


def start(plan: Path, log: Path) -> Namespace:
    """Start a plan as a daemon.

    Raises:
        Permanent: NotStarted when its process 1 does not appear; the log has the reason.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    argv = supervised(plan)
    os.posix_spawnp(argv[0], argv, CLEAN_ENVIRONMENT, file_actions=actions, setsid=True)
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while (found := find(plan)) is None:
        if time.monotonic() > deadline:
            raise Permanent("NotStarted", f"the cluster's process 1 did not start; see {log}")
        time.sleep(0.02)
    return found


def find(plan: Path) -> Namespace | None:
    """The namespaces in which a plan runs, or None."""
    for pid in _supervisors(plan):
        outer = _parent(pid)
        if _is_unshare(_argv(pid)) or not _is_unshare(_argv(outer)):
            continue
        return Namespace(outer, pid)
    return None


def end(plan: Path) -> None:
    """Kill a plan's process 1, upon which the kernel kills all others, and wait until they are gone.

    Raises:
        Permanent: NotEnded when a process is still there after a minute (stuck in the kernel).
    """
    doomed = _supervisors(plan)
    for pid in doomed:
        _kill(pid)
    deadline = time.monotonic() + _END_TIMEOUT_SECONDS
    while left := [pid for pid in doomed if not _is_gone(pid)]:
        if time.monotonic() > deadline:
            raise Permanent("NotEnded", f"processes {left} cannot be killed; see `dmesg`")
        time.sleep(0.02)
    for pid in doomed:
        _reap(pid)


def _supervisors(plan: Path) -> list[int]:
    """The `unshare` process that holds the namespaces, and process 1; their children have other names."""
    return [pid for pid in _pids() if {_SUPERVISOR, str(plan)} <= set(_argv(pid))]


def _is_unshare(argv: tuple[str, ...]) -> bool:
    return bool(argv) and Path(argv[0]).name == "unshare"


def _is_gone(pid: int) -> bool:
    """A zombie counts as gone: process 1 becomes one only after the kernel has killed its whole namespace."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _argv(pid: int) -> tuple[str, ...]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(raw.rstrip(b"\0").decode(errors="replace").split("\0"))


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _reap(pid: int) -> None:
    """Reap it if this process started it."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
