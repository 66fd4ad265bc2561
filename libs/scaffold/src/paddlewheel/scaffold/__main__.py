"""`python -m paddlewheel.scaffold NAME [--kind Kind] ...`: a new controller in this checkout."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from paddlewheel.scaffold.insertions import AnchorError
from paddlewheel.scaffold.naming import BadNameError, Naming
from paddlewheel.scaffold.write import ExistsError, write

_NEXT = """
Next:
  make gen fmt                        generate models, CRD, events page and bus accounts
  .venv/bin/pytest tests/unit/{package} tests/integration/{package}
  services/{service}/README.md        say what it is; then docs/add-a-service.md from step 2
"""


def main() -> int:
    """Exit code: 0 when it was written, 2 when the arguments cannot be used; nothing is written then."""
    parser = argparse.ArgumentParser(prog="paddlewheel.scaffold", description=__doc__)
    parser.add_argument("name", help="lower-case words joined by '-', e.g. notebook")
    parser.add_argument("--kind", default="", help="kind of the custom resource; default: NAME in CamelCase")
    parser.add_argument("--group", default="", help="API group; default: batch.paddlepaddle.org")
    parser.add_argument("--version", default="", help="version of the kind; default: v1alpha1")
    parser.add_argument("--context", default="", help="context of its facts; default: the kind's plural")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the checkout; default: this folder")
    arguments = parser.parse_args()
    try:
        naming = Naming.of(
            arguments.name, arguments.kind, arguments.group, arguments.version, arguments.context
        )
        written = write(arguments.root, naming)
    except (BadNameError, ExistsError, AnchorError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for path in written:
        sys.stdout.write(f"{path}\n")
    sys.stdout.write(_NEXT.format(**naming.placeholders))
    return 0


if __name__ == "__main__":
    sys.exit(main())
