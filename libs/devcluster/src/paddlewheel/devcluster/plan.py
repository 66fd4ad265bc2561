"""What a supervisor runs: data written by `up` and read by process 1 of the cluster and of each node."""

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
        ready: "" (as soon as it runs), "tcp:HOST:PORT", "unix:PATH" or an http(s) address that answers 200.
    """

    name: str
    argv: tuple[str, ...]
    after: tuple[str, ...] = ()
    ready: str = ""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Everything one supervisor does, in order: wait for the link, set up, run the units.

    Args:
        log_dir: one `<unit>.log` each.
        status_file: where the supervisor keeps what it sees, as JSON.
        wait_link: network interface that the host pushes in; "" waits for none.
        setup: commands that must succeed before any unit starts.
        writes: (path, text) pairs written after the setup, for /proc/sys.
        cgroups: (subtree, mount) pairs: process 1 sees a fresh group of the subtree as the mount.
    """

    log_dir: str
    status_file: str
    units: tuple[Unit, ...]
    wait_link: str = ""
    setup: tuple[tuple[str, ...], ...] = ()
    writes: tuple[tuple[str, str], ...] = ()
    cgroups: tuple[tuple[str, str], ...] = ()


def save(plan: Plan, path: Path) -> None:
    """Write the plan where its supervisor will read it."""
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
