"""`python -m paddlewheel.docs`: `gen` writes reference pages, `build` the site, `recording` shortens one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from paddlewheel.docs import recording, reference, site
from paddlewheel.docs.errors import DocsError

ROOT = Path(__file__).parents[5]


def main() -> int:
    """Exit code 1 = out of date, or not built."""
    parser = argparse.ArgumentParser(prog="paddlewheel.docs", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    gen = commands.add_parser("gen", help="write the pages that are made from code")
    gen.add_argument("--check", action="store_true", help="change nothing, fail when one is out of date")
    commands.add_parser("build", help="build the site")
    record = commands.add_parser("recording", help="shorten a terminal recording")
    record.add_argument("source", type=Path)
    record.add_argument("target", type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.command == "gen":
            return generate(check=arguments.check)
        if arguments.command == "recording":
            recording.shorten(arguments.source, arguments.target)
        else:
            site.build(ROOT)
    except DocsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def generate(*, check: bool) -> int:
    """Write what differs, or only name it."""
    stale = {path: text for path, text in reference.render(ROOT).items() if _read(path) != text}
    for path, text in stale.items():
        if check:
            sys.stderr.write(f"{path.relative_to(ROOT)} is out of date: run `make gen`\n")
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    raise SystemExit(main())
