"""Process 1 of a cluster's (and of each node's) namespaces: runs the setup, starts units in order, restarts
and reaps them.

Standard library only. When it exits the kernel kills every process of its namespace, so it never cleans up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from paddlewheel.core.files import replace_file
from paddlewheel.devcluster.cgroups import enter_cgroups
from paddlewheel.devcluster.plan import Plan, Unit, load
from paddlewheel.devcluster.probes import is_ready

_CHECK_INTERVAL_SECONDS = 0.1
_IDLE_CHECK_INTERVAL_SECONDS = 2.0
_LINK_TIMEOUT_SECONDS = 30.0
_RESTART_MAX_INTERVAL_SECONDS = 10.0
_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}


@dataclass
class Running:
    """State of one unit; `pid` 0 means not running, times are monotonic seconds."""

    unit: Unit
    pid: int = 0
    ready: bool = False
    restarts: int = -1
    start_at: float = 0.0


class Supervisor:
    """Keeps one plan's units running."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._states = {unit.name: Running(unit) for unit in plan.units}
        self._written = ""

    def run(self) -> None:
        """Run until SIGTERM."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        _set_up(self._plan)
        while True:
            self._reap()
            self._start_due()
            self._probe()
            self._write_status()
            caught = signal.sigtimedwait(_SIGNALS, self._tick())
            if caught is not None and caught.si_signo != signal.SIGCHLD:
                return

    def _tick(self) -> float:
        return (
            _IDLE_CHECK_INTERVAL_SECONDS
            if all(state.ready for state in self._states.values())
            else _CHECK_INTERVAL_SECONDS
        )

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._forget(pid)

    def _forget(self, pid: int) -> None:
        for state in self._states.values():
            if state.pid == pid:
                pause = min(_RESTART_MAX_INTERVAL_SECONDS, 0.5 * 2 ** min(state.restarts, 6))
                state.pid, state.ready, state.start_at = 0, False, time.monotonic() + pause

    def _start_due(self) -> None:
        for state in self._states.values():
            if state.pid == 0 and time.monotonic() >= state.start_at and self._may_start(state.unit):
                state.pid = _spawn(state.unit, Path(self._plan.log_dir))
                state.restarts += 1

    def _may_start(self, unit: Unit) -> bool:
        return all(self._states[name].ready for name in unit.after)

    def _probe(self) -> None:
        for state in self._states.values():
            if state.pid and not state.ready:
                state.ready = is_ready(state.unit.ready)

    def _write_status(self) -> None:
        seen = {
            name: {"pid": state.pid, "ready": state.ready, "restarts": max(0, state.restarts)}
            for name, state in self._states.items()
        }
        text = json.dumps(seen)
        if text != self._written:
            replace_file(Path(self._plan.status_file), text.encode())
            self._written = text


def _set_up(plan: Plan) -> None:
    if plan.wait_link:
        _await_link(plan.wait_link)
    if plan.cgroups:
        enter_cgroups(plan.cgroups)
    for command in plan.setup:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    for path, text in plan.writes:
        Path(path).write_text(text)


def _await_link(name: str) -> None:
    deadline = time.monotonic() + _LINK_TIMEOUT_SECONDS
    while f" {name}:" not in Path("/proc/net/dev").read_text():
        if time.monotonic() > deadline:
            raise TimeoutError(f"interface {name} did not appear within {_LINK_TIMEOUT_SECONDS} s")
        time.sleep(0.02)


def _spawn(unit: Unit, log_dir: Path) -> int:
    """Start a unit with default signal handling and its output appended to its log."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log_dir / f"{unit.name}.log"), flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(
        unit.argv[0], unit.argv, {**os.environ, **unit.env}, file_actions=actions, setsid=True, setsigmask=()
    )


def main() -> None:
    """Run the plan in the file given as first argument."""
    Supervisor(load(Path(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
