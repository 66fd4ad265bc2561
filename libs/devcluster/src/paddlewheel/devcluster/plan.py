"""The plan of a supervisor: the processes to run.

`up` writes it, process 1 of the cluster and of each node reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Unit:
    """One long-running process.

    Args:
        after: names of units that must be ready before this one starts.
        ready: "" (as soon as it runs), "tcp:HOST:PORT", "unix:PATH" or an http(s) URL that returns 200.
    """

    name: str
    argv: tuple[str, ...]
    after: tuple[str, ...] = ()
    ready: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Everything a supervisor does, in order: wait for the link, run the setup, run the units.

    Args:
        log_dir: directory with one `<unit>.log` per unit.
        status_file: where the supervisor writes the state of its units, as JSON.
        wait_link: network interface that the host moves in; "" means none.
        setup: commands that must succeed before any unit starts.
        writes: (path, text) pairs written after the setup, for /proc/sys.
        cgroups: (subtree, mount) pairs: process 1 moves into a new cgroup of the subtree, mounted there.
    """

    log_dir: str
    status_file: str
    units: tuple[Unit, ...]
    wait_link: str = ""
    setup: tuple[tuple[str, ...], ...] = ()
    writes: tuple[tuple[str, str], ...] = ()
    cgroups: tuple[tuple[str, str], ...] = ()


def save(plan: Plan, path: Path) -> None:
    """Write the plan to the file its supervisor reads."""
    path.write_text(json.dumps(asdict(plan), indent=1))


def load(path: Path) -> Plan:
    """Read a plan written by `save`."""
    raw = json.loads(path.read_text())
    return Plan(
        log_dir=raw["log_dir"],
        status_file=raw["status_file"],
        units=tuple(_unit(unit) for unit in raw["units"]),
        wait_link=raw["wait_link"],
        setup=tuple(tuple(command) for command in raw["setup"]),
        writes=tuple((path, text) for path, text in raw["writes"]),
        cgroups=tuple((subtree, mount) for subtree, mount in raw["cgroups"]),
    )


def _unit(raw: dict[str, object]) -> Unit:
    argv, after, env = raw["argv"], raw["after"], raw["env"]
    assert isinstance(argv, list)
    assert isinstance(after, list)
    assert isinstance(env, dict)
    return Unit(str(raw["name"]), tuple(argv), tuple(after), str(raw["ready"]), env)
