"""Servers that all workers of a test run share: started by the first that needs one, gone when the run ends.

A run is the pytest process that was started by hand; with pytest-xdist its workers are other processes. At
its end the run removes whatever is left of it: the clusters it claimed, and every process that was started
below it, which carries its mark in the environment. Should it be killed, a guard process does so at once.

    python -m paddlewheel.testkit.shared PID    the guard of the run with that process id
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.devcluster.cluster import down
from paddlewheel.devcluster.state import names
from paddlewheel.testkit.rights import keep

MARK = "PADDLEWHEEL_TEST_RUN"
"""Environment variable of all processes of a run; holds the owner's process id."""
CLUSTER_PREFIX = "test-"
"""Prefix of the names of clusters that tests start. The last part of a name is the process id of the
owner."""

_READY_WITHIN = 90.0
_POLL = 0.05
_ROUNDS = 2
"""Rounds of killing: a killed process may have started another one just before."""

Value = dict[str, Any]


def runs_dir() -> Path:
    """The parent of every run's directory. Within a run, TMPDIR is another directory."""
    return Path("/tmp/paddlewheel-test-runs")


@dataclass(frozen=True)
class TestRun:
    """One run as one of its processes sees it.

    Args:
        owner: process id of the pytest that was started by hand.
        worker: index of this worker; 0 as well when there are none.
    """

    __test__ = False

    owner: int
    worker: int

    @property
    def directory(self) -> Path:
        return runs_dir() / str(self.owner)

    @property
    def temporary(self) -> Path:
        """TMPDIR of all processes of the run."""
        return self.directory / "tmp"

    def share(self, name: str, start: Callable[[Path], Mapping[str, object]]) -> Value:
        """The result of `start` in the first process that called this. The other processes wait for it.

        Args:
            start: gets an empty directory. Its result must have a JSON form.
        """
        with self._lock(name):
            stored = self.directory / f"{name}.json"
            if not stored.exists():
                home = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))
                stored.write_text(json.dumps(start(home)))
            value: Value = json.loads(stored.read_text())
            return value

    def spawn(self, command: Sequence[str], log: Path, is_ready: Callable[[], bool]) -> None:
        """Start a process that ends with the run, in the directory of its log; return when it is ready.

        Raises:
            AssertionError: it ended or took too long; carries its log.
        """
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=log.parent,
                env={**os.environ, MARK: str(self.owner)}, start_new_session=True,
            )  # fmt: skip
        # Redis writes its title over its environment, so the mark alone would not find it.
        self._note("processes", f"{process.pid} {_start_time(process.pid)}")
        deadline = time.monotonic() + _READY_WITHIN
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{command[0]} did not start:\n{_tail(log)}")
            time.sleep(_POLL)
        # This process does not wait for it: the test run ends it, perhaps from another process.
        process.returncode = 0

    def claim_cluster(self, purpose: str) -> str:
        """A name for a cluster of this worker, which ends with the run at the latest."""
        name = f"{CLUSTER_PREFIX}{purpose}-{self.worker}-{self.owner}"
        self._note("clusters", name)
        return name

    def begin(self, files: Path) -> None:
        """Bring the guard, once, and end what killed runs have left.

        Args:
            files: below it tests mount file systems, which end with the run as well.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._note("files", str(files))
        with self._lock("guard"):
            log = self.directory / "guard.log"
            if not log.exists():
                remove_abandoned()
                self.spawn([sys.executable, "-m", __name__, str(self.owner)], log, lambda: True)

    def keep_rights(self) -> None:
        """Note what the chart's accounts asked for in the clusters that still run (`rights.py`)."""
        for name in self._noted("clusters"):
            keep(name)

    def end(self) -> None:
        """Remove everything that was started; idempotent."""
        for _ in range(_ROUNDS):
            for pid in self.processes():
                kill(pid)
        for name in self._noted("clusters"):
            down(name)
        for files in self._noted("files"):
            _unmount_below(files)
        remove_dead_sockets()
        shutil.rmtree(self.directory, ignore_errors=True)

    def processes(self) -> list[int]:
        """All that were started below the owner and run; not this process."""
        # An agent passes TMPDIR to its JuiceFS client, but not the mark.
        marks = {f"{MARK}={self.owner}".encode(), f"TMPDIR={self.temporary}".encode()}
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        marked = {pid for pid in pids if not marks.isdisjoint(_environment(pid))}
        noted = (line.partition(" ") for line in self._noted("processes"))
        started = {int(pid) for pid, _, started in noted if started and _start_time(int(pid)) == started}
        return sorted((marked | started) - {os.getpid(), self.owner})

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        with (self.directory / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _note(self, kind: str, line: str) -> None:
        with (self.directory / kind).open("a") as file:
            file.write(f"{line}\n")

    def _noted(self, kind: str) -> list[str]:
        """The notes of this kind; [] if another process has ended the run, e.g. because this one was
        killed."""
        with suppress(FileNotFoundError):
            return (self.directory / kind).read_text().splitlines()
        return []


def remove_dead_sockets() -> None:
    """Delete the sockets of JuiceFS and SeaweedFS, which put them into /tmp and leave them there."""
    for pattern in ("fuse_fd_comm.*", "seaweedfs-*.sock"):
        for path in Path("/tmp").glob(pattern):
            with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
                if client.connect_ex(str(path)) == errno.ECONNREFUSED:
                    path.unlink()


def remove_abandoned() -> None:
    """End what runs left behind whose owner was killed together with its guard."""
    for directory in runs_dir().glob("*"):
        if directory.name.isdigit() and not _is_alive(directory.name):
            TestRun(int(directory.name), 0).end()
    for name in names():
        owner = name.rpartition("-")[2]
        if name.startswith(CLUSTER_PREFIX) and owner.isdigit() and not _is_alive(owner):
            down(name)


def guard(owner: int) -> None:
    """Wait until the owner is gone, then end what its run has left."""
    with suppress(ProcessLookupError):
        watched = os.pidfd_open(owner)
        select.select([watched], [], [])
    TestRun(owner, 0).end()


def kill(pid: int) -> None:
    """Kill a process with SIGKILL. Return when it has ended, so that it no longer answers or writes."""
    with suppress(ProcessLookupError):
        watched = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGKILL)
            select.select([watched], [], [], _READY_WITHIN)
        finally:
            os.close(watched)


def _is_alive(pid: str) -> bool:
    return Path("/proc", pid).exists()


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


def _environment(pid: int) -> list[bytes]:
    """The environment of the process; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _start_time(pid: int) -> str:
    """Clock ticks after boot, which tell two processes of one pid apart; "" when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name in parentheses may contain anything; the state follows it.
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state == "Z" else fields[18]


def _unmount_below(folder: str) -> None:
    mounts = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for path in [path for path in mounts if path.startswith(f"{folder}/")]:
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)


# The plugin


def _run_of(config: pytest.Config) -> TestRun:
    told: Mapping[str, Any] = getattr(config, "workerinput", {})
    worker = str(told.get("workerid", "gw0")).removeprefix("gw")
    return TestRun(int(told.get("test_run_owner", os.getpid())), int(worker))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called in the owner for each worker."""
    node.workerinput["test_run_owner"] = os.getpid()


def pytest_configure(config: pytest.Config) -> None:
    """Mark this process, and put its temporary files, and those of its children, below the run."""
    run = _run_of(config)
    os.environ[MARK] = str(run.owner)
    # pytest's own directories stay, for failures to be read.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    if run.owner == os.getpid():
        # A run that was killed may have had the same process ID.
        run.end()
    run.temporary.mkdir(parents=True, exist_ok=True)
    # mutmut runs pytest several times in one process.
    changed = pytest.MonkeyPatch()
    changed.setenv("TMPDIR", str(run.temporary))
    changed.setattr(tempfile, "tempdir", str(run.temporary))
    config.add_cleanup(changed.undo)


def pytest_unconfigure(config: pytest.Config) -> None:
    run = _run_of(config)
    if run.owner == os.getpid():
        run.keep_rights()
        run.end()


@pytest.fixture(scope="session")
def test_run(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> TestRun:
    """This run; what it shares and claims ends with it."""
    run = _run_of(pytestconfig)
    run.begin(tmp_path_factory.getbasetemp())
    return run


if __name__ == "__main__":
    guard(int(sys.argv[1]))
