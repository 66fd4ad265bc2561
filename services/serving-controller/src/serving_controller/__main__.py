"""`python -m serving_controller`: read settings, run the app, give its exit code."""

from __future__ import annotations

import sys

from paddlewheel.operator.serve import run_controller
from serving_controller.app import build
from serving_controller.config import Settings
from serving_controller.domain import names


def main() -> int:
    """Exit code: 0 after a clean stop, 1 after an error."""
    return run_controller(names.SERVICE, Settings, build)


if __name__ == "__main__":
    sys.exit(main())
