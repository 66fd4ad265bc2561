"""Everything that `make attacks` tries: the attacks of this folder, and tests named `test_attack_*`."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Coroutine, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from tests.attacks import attacks, reporting, stand, watchers
from tests.attacks.attacks import Attack
from tests.attacks.reporting import Reported, reported
from tests.attacks.servers import Servers
from tests.attacks.stand import Harm, is_harmed

TOP = Path(__file__).parents[2]
_TEST = re.compile(r"^(?:async )?def test_attack_(\w+)\(", re.MULTILINE)


class Outcome(StrEnum):
    """Of an attack."""

    REFUSED = "refused"
    SUCCEEDED = "SUCCEEDED"
    ERROR = "ERROR"
    """It was not tried, or not to its end, which proves nothing."""


Attempt = Callable[[Servers], Coroutine[Any, Any, Harm]]
Tell = Callable[[str, Outcome], None]
"""Told of each row."""


async def _tried(attack: Attack, servers: Servers) -> Harm:
    """On the server with passwords."""
    async with stand.installed(servers.with_passwords) as made:
        return await attacks.attempt(attack, made)


async def _tried_by_watcher(run: watchers.Run, servers: Servers) -> Harm:
    """On the server with tokens and teams."""
    async with watchers.installed(servers.with_teams) as made:
        return await run(made)


def attempts() -> Mapping[str, Attempt]:
    """The attacks of this folder."""
    return {
        **{attack.name: partial(_tried, attack) for attack in attacks.ATTACKS},
        **{name: partial(_tried_by_watcher, run) for name, run in watchers.ATTACKS.items()},
    }


def attempted(attempt: Attempt, servers: Servers) -> Outcome:
    """Whether it succeeded. Errors on the way are printed on stderr."""
    try:
        return Outcome.SUCCEEDED if is_harmed(asyncio.run(attempt(servers))) else Outcome.REFUSED
    except Exception:
        traceback.print_exc()
        return Outcome.ERROR


def elsewhere() -> Mapping[str, str]:
    """Attacks that are tests on other stands: the row of each, and its node.

    Raises:
        ValueError: two have one name.
    """
    found: dict[str, str] = {}
    for file in sorted((TOP / "tests" / "integration").glob("*/test_*.py")):
        for name in _TEST.findall(file.read_text()):
            if (row := name.replace("_", " ")) in found:
                raise ValueError(f"two attacks are called {row!r}")
            found[row] = f"{file.relative_to(TOP)}::test_attack_{name}"
    return found


def run_elsewhere(rows: Collection[str], tell: Tell) -> None:
    """Run these of `elsewhere`; one with parameters has a row for each. What fails is told on stderr.

    In a process of its own: pytest rewrites modules as it imports them.
    """
    nodes = {node: row for row, node in elsewhere().items() if row in rows}
    told: set[str] = set()
    # Without the options of the project, which are about a terminal.
    options = ["-o", "addopts=", "--import-mode=importlib", "-p", "no:terminal", "-p", reporting.__name__]
    command = [sys.executable, "-m", "pytest", *options, *nodes]
    with subprocess.Popen(command, cwd=TOP, stdout=subprocess.PIPE, text=True) as process:
        for report in filter(None, map(reported, process.stdout or ())):
            node, bracket, parameters = report.nodeid.partition("[")
            told.add(nodes[node])
            tell(nodes[node] + (f" {bracket}{parameters}" if bracket else ""), outcome_of(report))
    for row in sorted(set(nodes.values()) - told):
        tell(row, Outcome.ERROR)


def outcome_of(report: Reported) -> Outcome:
    """A test asserts that its attack is refused. One that was skipped, or has no stand, has not tried."""
    if report.when != "call":
        return Outcome.ERROR
    return {"passed": Outcome.REFUSED, "failed": Outcome.SUCCEEDED}.get(report.outcome, Outcome.ERROR)
