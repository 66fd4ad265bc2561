"""The cache runtime of a data set on this machine: a process per partition, with its own mount and cache."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.cache_runtime.mounted_pods import share_mounts, unmount_below

from paddlewheel.devcluster.commands import tool
from paddlewheel.testkit.storage import JuiceFsVolume

_READY_WITHIN = 90.0
_STOP_WITHIN = 120.0


@dataclass
class RuntimeSet:
    """Agents of one data set as subprocesses.

    Args:
        settings: extra CACHE_RUNTIME_* variables for all.
        module: the program of an agent.
    """

    directory: Path
    nats_url: str
    volume: JuiceFsVolume
    settings: Mapping[str, str] = field(default_factory=dict)
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    name: str = "digits"
    namespace: str = "default"
    module: str = "cache_runtime"
    _processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _left_behind: list[int] = field(default_factory=list)

    def mount_path(self, partition: int) -> Path:
        """Where the agent of this partition mounts the set."""
        return self.directory / f"mnt-{partition}" / self.uid

    def state_dir(self, partition: int) -> Path:
        """The state directory of the agent."""
        return self.directory / f"state-{partition}"

    def cache_dir(self, partition: int) -> Path:
        return self.directory / f"cache-{partition}"

    def log(self, partition: int) -> str:
        """The output of the agent so far."""
        path = self.directory / f"agent-{partition}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def write_secret(self, prefix: str, values: Mapping[str, str]) -> None:
        """Files `<prefix>.<key>`, as in the mounted Secret of the runtime."""
        secrets = self.directory / "secrets"
        secrets.mkdir(exist_ok=True)
        for key, value in values.items():
            (secrets / f"{prefix}.{key}").write_text(value)

    def start(self, partition: int) -> None:
        """Start the agent without waiting."""
        self.write_secret("engine", self.volume.secret())
        share_mounts(self.mount_path(partition).parent)
        with (self.directory / f"agent-{partition}.log").open("ab") as log:
            self._processes[partition] = subprocess.Popen(
                [sys.executable, "-m", self.module], env=self._environment(partition),
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def process(self, partition: int) -> subprocess.Popen[bytes]:
        """The process of the agent, for a test that waits for its end."""
        return self._processes[partition]

    def kill(self, partition: int) -> None:
        """SIGKILL. The client goes on, and so does the mount."""
        self._left_behind += self.mount_processes(partition)
        process = self._processes.pop(partition)
        process.kill()
        process.wait(60)

    def kill_pod(self, partition: int) -> None:
        """SIGKILL for the agent and its child processes, as at the end of a container."""
        process = self._processes.pop(partition)
        started = _descendants(process.pid)
        for pid in (process.pid, *started):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(60)

    def stop(self, partition: int) -> int:
        """SIGTERM; returns the exit code."""
        process = self._processes[partition]
        process.send_signal(signal.SIGTERM)
        code = process.wait(_STOP_WITHIN)
        del self._processes[partition]
        return code

    def mount_processes(self, partition: int) -> list[int]:
        """Pids of the JuiceFS client: its watchdog, then the process that serves the files."""
        watchdogs = [pid for pid in _children(self._processes[partition].pid) if _is_client(pid)]
        return [*watchdogs, *(pid for parent in watchdogs for pid in _children(parent))]

    def descendants(self) -> list[int]:
        """Pids of all child processes of the agents, at any depth."""
        return [pid for process in self._processes.values() for pid in _descendants(process.pid)]

    def is_mounted(self, partition: int) -> bool:
        """Whether a live JuiceFS answers at the mount path."""
        try:
            return (self.mount_path(partition) / ".stats").exists()
        except OSError:
            return False

    def wait_mounted(self, *partitions: int) -> None:
        """Raises AssertionError with the log when an agent does not mount."""
        deadline = time.monotonic() + _READY_WITHIN
        for partition in partitions:
            while not self.is_mounted(partition):
                process = self._processes.get(partition)
                ended = process is None or process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise AssertionError(f"not mounted:\n{self.log(partition)}")
                time.sleep(0.05)

    def close(self) -> None:
        """Stop all agents and remove every mount, also of agents that were killed."""
        for partition, process in self._processes.items():
            for pid in self.mount_processes(partition):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)  # a process that waits for a stopped client cannot be killed
            process.terminate()
        for partition in list(self._processes):
            try:
                self.stop(partition)
            except subprocess.TimeoutExpired:
                self.kill(partition)
        for pid in self._left_behind:
            self._end_client(pid)
        unmount_below(self.directory)

    def _end_client(self, pid: int) -> None:
        """The pid may have been reused."""
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and str(self.directory).encode() in command.read_bytes():
            os.kill(pid, signal.SIGKILL)

    def _environment(self, partition: int) -> dict[str, str]:
        own = {
            "NATS_URL": self.nats_url, "SET_NAMESPACE": self.namespace, "SET_NAME": self.name,
            "SET_UID": self.uid,
            "POD_NAME": f"{self.name}-runtime-{partition}", "NODE_NAME": f"node-{partition}",
            "MOUNT_PATH": str(self.mount_path(partition)), "CACHE_DIRS": str(self.cache_dir(partition)),
            "CACHE_SIZE_MIB": "1024", "SECRETS_DIR": str(self.directory / "secrets"), "SECRET_WAIT": "2",
            "CACHE_ROOTS": json.dumps([str(self.directory)]),
            "STATE_DIR": str(self.state_dir(partition)),
            "HTTP_PORT": "0", "JUICEFS": tool("juicefs"), "STATUS_INTERVAL": "1",
            "MOUNT_OPTIONS": json.dumps({"free-space-ratio": "0.01", "backup-meta": "0"}),
        }  # fmt: skip
        return {**os.environ, **{f"CACHE_RUNTIME_{k}": v for k, v in {**own, **self.settings}.items()}}


def _descendants(pid: int) -> list[int]:
    children = _children(pid)
    return [*children, *(below for child in children for below in _descendants(child))]


def _children(pid: int) -> list[int]:
    """Child processes. Threads of the process, or the process itself, may end meanwhile."""
    found = list[int]()
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, file.read_text().split())
    return found


def _is_client(pid: int) -> bool:
    """Whether the process is a JuiceFS client. A child before its `exec` is none."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name == "juicefs"
    except OSError:
        return False
