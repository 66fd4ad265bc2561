"""Generate files from `protos/`, or check with --check that they are up to date.

    python -m paddlewheel.contracts.gen [--check]

The models and the registry in `generated/` are written first. The documents, `docs/asyncapi.yaml` and the
reference in `docs/events.md`, come second, because the generated models encode their examples.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

from paddlewheel.contracts.gen import models, registry
from paddlewheel.contracts.gen.protos import ROOT, build

OUT = Path(__file__).parents[1] / "generated"
INIT = '"""Generated from protos/ by `make gen`; do not edit."""\n'


def main() -> int:
    """Entry point. Returns exit code 1 if `--check` finds a file that is out of date."""
    parser = argparse.ArgumentParser(prog="paddlewheel.contracts.gen", description="models and documents")
    parser.add_argument("--check", action="store_true", help="fail when a file is out of date")
    check = parser.parse_args().check
    descriptors = build(ROOT / "protos")
    code = {"__init__.py": INIT, "registry.py": registry.render(descriptors), **models.render(descriptors)}
    stale = settle({OUT / name: text for name, text in code.items()}, set(OUT.glob("*.py")), check=check)
    if not stale or not check:
        # Import this only now: it imports the models that were just written.
        documents = importlib.import_module("paddlewheel.contracts.gen.documents")
        stale |= settle(documents.render(descriptors), set(), check=check)
    if check and stale:
        names = ", ".join(sorted(str(path.relative_to(ROOT)) for path in stale))
        print(f"out of date: {names}; run `make gen`", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def settle(wanted: Mapping[Path, str], present: set[Path], *, check: bool) -> set[Path]:
    """Write the wanted files and delete all others; with `check`, change nothing.

    Args:
        wanted: path to text.
        present: the generated files that exist.
        check: whether to compare only.

    Returns:
        The files that were out of date.
    """
    differing = {path for path, text in wanted.items() if not path.exists() or path.read_text() != text}
    gone = present - wanted.keys()
    if not check:
        for path in gone:
            path.unlink()
        for path in differing:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path])
    return differing | gone


if __name__ == "__main__":
    raise SystemExit(main())
