"""`make attacks`: what those who are let in try on others, on the chart's own server; one row for each."""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from tests.attacks import agents, watchers
from tests.attacks.attacks import ATTACKS, Attack, attempt
from tests.attacks.stand import installed, server


async def tried(attack: Attack) -> bool:
    """On a server of its own: the ones before may have left their mark."""
    with tempfile.TemporaryDirectory(prefix="paddlewheel-attack-") as folder, server(Path(folder)) as bus:
        async with installed(bus) as stand:
            return await attempt(attack, stand)


async def tried_by_agent(run: agents.Run) -> bool:
    """On a server with tokens."""
    with tempfile.TemporaryDirectory(prefix="paddlewheel-attack-") as folder:
        async with agents.tenants(Path(folder)) as made:
            return await agents.attempt(run, made)


async def tried_by_watcher(run: watchers.Run) -> bool:
    """On a server with tokens and teams."""
    with tempfile.TemporaryDirectory(prefix="paddlewheel-attack-") as folder:
        async with watchers.installed(Path(folder)) as made:
            return await run(made)


def main() -> int:
    """Exit code 1 when one succeeded."""
    logging.disable()
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    harmed = 0
    attempts = {attack.name: tried(attack) for attack in ATTACKS if only in attack.name}
    attempts |= {name: tried_by_agent(run) for name, run in agents.ATTACKS.items() if only in name}
    attempts |= {name: tried_by_watcher(run) for name, run in watchers.ATTACKS.items() if only in name}
    for name, attempting in attempts.items():
        succeeded = asyncio.run(attempting)
        harmed += succeeded
        sys.stdout.write(f"{name} {'SUCCEEDED' if succeeded else 'refused'}\n")
        sys.stdout.flush()
    return 1 if harmed else 0


if __name__ == "__main__":
    raise SystemExit(main())
