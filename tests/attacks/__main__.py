"""`make attacks`: what people and pods try on others, one row for each, and each line of docs/security.md."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.attacks.rows import Outcome, attempted, attempts, elsewhere, run_elsewhere
from tests.attacks.servers import Servers
from tests.attacks.threats import lines, threat_of

WORST = (Outcome.SUCCEEDED, Outcome.ERROR, Outcome.REFUSED)


def show(row: str, outcome: Outcome) -> None:
    """One row."""
    sys.stdout.write(f"{row} {outcome}\n")
    sys.stdout.flush()


def try_all(only: str) -> Mapping[str, Outcome]:
    """Each attack whose name has the text."""
    found: dict[str, Outcome] = {}

    def tell(row: str, outcome: Outcome) -> None:
        found[row] = outcome
        show(row, outcome)

    logging.disable()
    with tempfile.TemporaryDirectory(prefix="paddlewheel-attacks-") as folder, ExitStack() as ends:
        servers = Servers(Path(folder), ends)
        for name, attempt in attempts().items():
            if only in name:
                tell(name, attempted(attempt, servers))
    logging.disable(logging.NOTSET)
    if rows := [row for row in elsewhere() if only in row]:
        run_elsewhere(rows, tell)
    return found


def worst(outcomes: Collection[Outcome]) -> Outcome:
    """Of a line's attacks; a line that nothing tried is an error."""
    return next((each for each in WORST if each in outcomes), Outcome.ERROR)


def show_lines(found: Mapping[str, Outcome]) -> list[Outcome]:
    """Each line of the table."""
    outcomes = []
    for who, tries in lines():
        threat = threat_of(who, tries)
        outcomes.append(worst([outcome for row, outcome in found.items() if threat.is_tried_in(row)]))
        show(f"{who}: {tries}", outcomes[-1])
    return outcomes


def main() -> int:
    """Exit code 1 when one succeeded, 2 when one could not be tried."""
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    found = try_all(only)
    outcomes = [*found.values(), *([] if only else show_lines(found))]
    return {Outcome.SUCCEEDED: 1, Outcome.ERROR: 2, Outcome.REFUSED: 0}[worst(outcomes)]


if __name__ == "__main__":
    raise SystemExit(main())
