"""`python -m job_controller`: read settings, run the app, give its exit code."""

from __future__ import annotations

import sys

from job_controller.app import build
from job_controller.config import Settings
from job_controller.core import names
from paddlewheel.operator.serve import run_controller


def main() -> int:
    """Exit code: 0 after a clean stop, 1 after an error."""
    return run_controller(names.SERVICE, Settings, build)


if __name__ == "__main__":
    sys.exit(main())
