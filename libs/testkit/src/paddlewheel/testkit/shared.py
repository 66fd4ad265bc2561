"""Servers that all workers of a test run share: started by the first that needs one, gone when the run ends.

A run is the pytest process that was started by hand; with pytest-xdist its workers are other processes. What
a run starts is recorded in a directory of its own. The run's first process cleans up at its end; should it be
killed, a guard process does so at once.

    python -m paddlewheel.testkit.shared PID    the guard of the run with that process id
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
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

CLUSTER_PREFIX = "test-"
"""Of the names of clusters that tests start; the last part is the process id of the owner."""

_READY_WITHIN = 60.0
_POLL = 0.05

Value = dict[str, Any]


def runs_dir() -> Path:
    """Parent of every run's directory."""
    return Path(tempfile.gettempdir()) / "paddlewheel-test-runs"


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

    def share(self, name: str, start: Callable[[Path], Mapping[str, object]]) -> Value:
        """What `start` returned in the first process that called this; the others wait for it.

        Args:
            start: gets an empty directory; starts processes with `spawn`, clusters under a name from
                `claim_cluster`. Its result must have a JSON form.
        """
        self._begin()
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
                start_new_session=True,
            )  # fmt: skip
        self._note("processes", f"{process.pid} {_start_time(process.pid)}")
        deadline = time.monotonic() + _READY_WITHIN
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{command[0]} did not start:\n{_tail(log)}")
            time.sleep(_POLL)
        # Nobody waits for it here: the run ends it, perhaps from another process.
        process.returncode = 0

    def claim_cluster(self, purpose: str) -> str:
        """A name for a cluster of this worker, which ends with the run at the latest."""
        name = f"{CLUSTER_PREFIX}{purpose}-{self.worker}-{self.owner}"
        self._begin()
        self._note("clusters", name)
        return name

    def end(self) -> None:
        """Remove everything that was started; idempotent."""
        for line in self._noted("processes"):
            pid, started = line.split()
            if int(pid) != os.getpid() and _start_time(int(pid)) == started:
                _kill(int(pid))
        for name in self._noted("clusters"):
            down(name)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _begin(self) -> None:
        """The first thing that is started brings the guard, and ends what killed runs have left."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._lock("guard"):
            begun = self.directory / "guard.log"
            if not begun.exists():
                remove_abandoned()
                self.spawn([sys.executable, "-m", __name__, str(self.owner)], begun, lambda: True)

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        with (self.directory / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _note(self, kind: str, line: str) -> None:
        with (self.directory / kind).open("a") as file:
            file.write(f"{line}\n")

    def _noted(self, kind: str) -> list[str]:
        path = self.directory / kind
        return path.read_text().splitlines() if path.exists() else []


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


def _kill(pid: int) -> None:
    """Return when it has ended: nothing writes to the run's directory any more."""
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


def _start_time(pid: int) -> str:
    """Together with the id it names a process for ever; "" when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


# The plugin


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called in the owner for each worker."""
    node.workerinput["test_run_owner"] = os.getpid()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        TestRun(os.getpid(), 0).end()


@pytest.fixture(scope="session")
def test_run(pytestconfig: pytest.Config) -> TestRun:
    """This run; its owner cleans up what is shared."""
    told: Mapping[str, Any] = getattr(pytestconfig, "workerinput", {})
    worker = str(told.get("workerid", "gw0")).removeprefix("gw")
    return TestRun(int(told.get("test_run_owner", os.getpid())), int(worker))


if __name__ == "__main__":
    guard(int(sys.argv[1]))
