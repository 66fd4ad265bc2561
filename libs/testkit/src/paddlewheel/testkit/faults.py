"""Breaking things on purpose inside an embedded cluster."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from paddlewheel.devcluster import namespace
from paddlewheel.devcluster.cluster import opened


def kill_program(cluster: str, program: str) -> int:
    """kill -9 every process of that program inside the cluster, pods included; returns their number."""
    found = namespace.find(opened(cluster).dirs.plan)
    assert found is not None, f"cluster {cluster} is not running"
    victims = [process.pid for process in _below(found.init) if process.name == program]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    return len(victims)


def crash_node(cluster: str, node: str) -> None:
    """Kill the kubelet, containerd and all containers of a node. It stays off until `start_node`.

    They are stopped first, so that none reports the end of another one.
    """
    init = _init_of(cluster, node)
    # Process 1 of the node would start them again.
    os.kill(init, signal.SIGSTOP)
    stopped: set[int] = set()
    while running := {process.pid for process in _below(init)} - stopped:
        for pid in running:
            _send(pid, signal.SIGSTOP)
        stopped |= running
    for pid in stopped:
        _send(pid, signal.SIGKILL)


def start_node(cluster: str, node: str) -> None:
    """Start a crashed node again, as after a power failure. Does nothing to a node that runs."""
    init = _init_of(cluster, node)
    if any(process.pid == init and process.state == "T" for process in _processes()):
        # Process 1 of the cluster starts another one.
        os.kill(init, signal.SIGKILL)


def _init_of(cluster: str, node: str) -> int:
    found = namespace.find(opened(cluster).dirs.node(node).plan)
    assert found is not None, f"node {node} is not running"
    return found.init


def _send(pid: int, signal_: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal_)


class _Process(NamedTuple):
    """One process, zombies included."""

    pid: int
    state: str
    parent: int
    name: str


def _below(ancestor: int) -> list[_Process]:
    """All descendants of a process."""
    processes = _processes()
    parents = {process.pid: process.parent for process in processes}
    return [process for process in processes if _descends(process.parent, ancestor, parents)]


def _processes() -> list[_Process]:
    processes = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            head, _, rest = (folder / "stat").read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent, *_ = rest.split()
        processes.append(_Process(int(folder.name), state, int(parent), head.partition("(")[2]))
    return processes


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid and pid != ancestor:
        pid = parents.get(pid, 0)
    return pid == ancestor
