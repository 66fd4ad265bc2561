"""`python -m paddlewheel.testkit.fast_controller job_controller`: a controller whose clock runs faster."""

from __future__ import annotations

import sys
from importlib import import_module

from paddlewheel.operator.serve import run_controller
from paddlewheel.testkit.fast_clock import FastClock


def main(module: str) -> int:
    """Exit code of the controller's own `main`."""
    app, config, names = (import_module(f"{module}.{part}") for part in ("app", "config", "domain.names"))
    return run_controller(names.SERVICE, config.Settings, app.build, FastClock())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
