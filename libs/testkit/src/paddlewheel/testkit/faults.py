"""Breaking things on purpose inside an embedded cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from paddlewheel.devcluster import namespace
from paddlewheel.devcluster.cluster import opened


def kill_program(cluster: str, program: str) -> int:
    """kill -9 every process of that program inside the cluster, pods included; returns their number."""
    found = namespace.find(opened(cluster).dirs.plan)
    assert found is not None, f"cluster {cluster} is not running"
    parents = {pid: parent for pid, parent, _ in _processes()}
    victims = [
        pid for pid, _, name in _processes() if name == program and _descends(pid, found.init, parents)
    ]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    return len(victims)


def _processes() -> list[tuple[int, int, str]]:
    """Pid, parent's pid and name of every process."""
    processes = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            head, _, rest = (folder / "stat").read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        processes.append((int(folder.name), int(rest.split()[1]), head.partition("(")[2]))
    return processes


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid and pid != ancestor:
        pid = parents.get(pid, 0)
    return pid == ancestor
