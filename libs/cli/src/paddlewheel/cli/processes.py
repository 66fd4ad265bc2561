"""Long-running local processes of the inner loop: detached, recorded, and stopped by their record."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson


@dataclass(frozen=True)
class Process:
    """One started process; `started` is the kernel's start time, which distinguishes it from a reused pid."""

    name: str
    pid: int
    started: int
    log: str

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started


def start_time(pid: int) -> int:
    """Clock ticks since boot at which the process started; 0 when it has exited or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


def descendants() -> list[int]:
    """All child processes of this process that are still in its session."""
    rows = (_stat(path) for path in Path("/proc").glob("[0-9]*/stat"))
    parents = {pid: parent for pid, parent, session in filter(None, rows) if session == os.getsid(0)}
    found: list[int] = []
    newest = {os.getpid()}
    while newest := {pid for pid, parent in parents.items() if parent in newest}:
        found += newest
    return found


def _stat(path: Path) -> tuple[int, int, int] | None:
    """Pid, parent and session of a process; None when it has exited."""
    try:
        state, parent, _group, session, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else (int(path.parent.name), int(parent), int(session))


class ProcessTable:
    """The processes recorded in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def recorded(self) -> list[Process]:
        return [Process(**orjson.loads(path.read_bytes())) for path in sorted(self._folder.glob("*.json"))]

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> Process:
        """Start detached, unless a process of that name is alive; output goes to `<name>.log`."""
        if running := next((p for p in self.recorded() if p.name == name and p.alive), None):
            return running
        log = self._folder / f"{name}.log"
        with log.open("ab") as sink:
            outputs = [(os.POSIX_SPAWN_DUP2, sink.fileno(), number) for number in (1, 2)]
            nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
            pid = os.posix_spawn(
                command[0], list(command), env, file_actions=[nothing, *outputs], setsid=True
            )
        process = Process(name, pid, start_time(pid), str(log))
        (self._folder / f"{name}.json").write_bytes(orjson.dumps(asdict(process)))
        return process

    def stop_all(self, *, within: float = 10.0) -> list[Process]:
        """Send SIGTERM to all, SIGKILL to the processes that still run after `within` seconds."""
        ended = [process for process in self.recorded() if process.alive]
        for process in ended:
            os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + within
        while any(p.alive for p in ended) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in ended:
            if process.alive:
                os.kill(process.pid, signal.SIGKILL)
        for record in self._folder.glob("*.json"):
            record.unlink()
        return ended
