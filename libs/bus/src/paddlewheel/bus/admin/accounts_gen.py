"""Write the NATS server's accounts and streams' sizes where the chart reads them, or check that they agree.

    python -m paddlewheel.bus.admin.accounts_gen [--check] [--out FILE]

Exit code 0: written, or up to date; 1: `--check` found a difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddlewheel.bus.admin.accounts import server_accounts, service_template, team_template
from paddlewheel.bus.admin.permissions import FACTS, ROLES
from paddlewheel.bus.streams import STREAMS

OUT = Path("deploy/charts/paddlewheel/files/bus-accounts.json")
_LINE = 160
"""The longest line, where a value can be divided."""


def text() -> str:
    """JSON: accounts, templates of teams and of declared services, roles, and sizes of streams.

    `copied` means that each team has a copy of the stream, which needs its size again.
    """
    sizes = {
        spec.name: {"bytes": spec.max_bytes, "copied": spec in FACTS, "memory": spec.storage == "memory"}
        for spec in STREAMS
    }
    found = {
        "accounts": server_accounts(),
        "roles": sorted(role.name for role in ROLES),
        "service": service_template(),
        "streams": sizes,
        "team": team_template(),
    }
    return f"{_shown(found)}\n"


def _shown(value: Any, indent: str = "") -> str:
    """JSON with one line for each export, import and other small value."""
    line = json.dumps(value, sort_keys=True)
    if not isinstance(value, dict | list) or len(indent + line) <= _LINE:
        return line
    deeper = f"{indent} "
    if isinstance(value, list):
        parts = [_shown(each, deeper) for each in value]
    else:
        parts = [f"{json.dumps(name)}: {_shown(value[name], deeper)}" for name in sorted(value)]
    begin, end = "[]" if isinstance(value, list) else "{}"
    inner = f",\n{deeper}".join(parts)
    return f"{begin}\n{deeper}{inner}\n{indent}{end}"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description="Generate the accounts of the NATS server.")
    parser.add_argument("--check", action="store_true", help="change nothing, fail when out of date")
    parser.add_argument("--out", type=Path, default=OUT, help="the file")
    options = parser.parse_args(argv)
    wanted = text()
    if not options.check:
        options.out.write_text(wanted, encoding="utf-8")
        return 0
    if options.out.exists() and options.out.read_text(encoding="utf-8") == wanted:
        return 0
    sys.stderr.write(f"{options.out} is out of date: run `make gen`\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
