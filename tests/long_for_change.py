"""Print the long tests that a change needs, by the table in CONTRIBUTING.md.

python -m tests.long_for_change [BASE]    compare the working tree with BASE (default: origin/main)
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITES = ("tests/attacks/", "tests/contract/", "tests/integration/", "tests/e2e/")
"""The suites with long tests."""
_HEADER = "| a change in | needs `make test-long ONLY=` |"


def read_table(text: str) -> dict[str, list[str]]:
    """Long tests by path prefix. Both columns hold paths in backquotes, several in one cell.

    Args:
        text: the whole of CONTRIBUTING.md.
    """
    rows = text.partition(_HEADER)[2].split("\n\n")[0].splitlines()[2:]
    table: dict[str, list[str]] = {}
    for row in rows:
        changed, needed, *_ = (re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|"))
        table |= {path: [*table.get(path, []), *needed] for path in changed}
    return table


def needed_for(changed: Iterable[str], table: Mapping[str, list[str]]) -> list[str]:
    """Sorted paths of long tests for these changed files.

    A changed test file needs itself, and a file that tests share needs its folder.
    """
    found = set[str]()
    for path in changed:
        found |= {test for prefix, tests in table.items() if path.startswith(prefix) for test in tests}
        if path.startswith(SUITES):
            found.add(path if Path(path).name.startswith("test_") else str(Path(path).parent))
    return sorted(path for path in found if not any(path.startswith(f"{other}/") for other in found))


def changed_files(base: str) -> list[str]:
    """Files that differ from the common ancestor with `base`, and files that git does not know yet.

    Raises:
        subprocess.CalledProcessError: `base` is not a commit.
    """
    git = ["git", "-C", str(ROOT)]
    differ = subprocess.check_output([*git, "diff", "--name-only", "--merge-base", base], text=True)
    new = subprocess.check_output([*git, "ls-files", "--others", "--exclude-standard"], text=True)
    return [*differ.splitlines(), *new.splitlines()]


def main(base: str) -> int:
    table = read_table((ROOT / "CONTRIBUTING.md").read_text())
    try:
        found = needed_for(changed_files(base), table)
    except subprocess.CalledProcessError:
        print(
            f"{base} is not a commit; pass another one: make test-long-for-change BASE=HEAD~1",
            file=sys.stderr,
        )
        return 2
    tests = [path for path in found if (ROOT / path).exists()]
    print(f'make test-long ONLY="{" ".join(tests)}"' if tests else "no long tests are needed")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or ["origin/main"]))
