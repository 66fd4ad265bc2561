"""`python -m paddlewheel.testkit.fast_controller job_controller`: a controller whose clock runs faster."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from paddlewheel.operator.serve import run_controller
from paddlewheel.testkit.fast_clock import FastClock


def parts(module: str) -> tuple[ModuleType, ModuleType, ModuleType]:
    """The modules from which a controller's own `main` starts it: app, config and names."""
    app, config = (import_module(f"{module}.{part}") for part in ("app", "config"))
    names: ModuleType = import_module(f"{module}.__main__").names
    return app, config, names


def main(module: str) -> int:
    """Exit code of the controller's own `main`."""
    app, config, names = parts(module)
    return run_controller(names.SERVICE, config.Settings, app.build, FastClock())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
