"""The command `paddle-runtime`."""

from __future__ import annotations

import ctypes
import sys
from functools import partial

from paddle_runtime.app import SOURCE, run
from paddle_runtime.config import PaddleRuntimeSettings
from paddlewheel.core import logging
from paddlewheel.core.errors import Permanent
from paddlewheel.core.run import run_service
from paddlewheel.core.settings import load_settings

_PR_SET_DUMPABLE = 4


def main() -> int:
    """Read settings, serve until SIGTERM.

    Returns:
        0 after SIGTERM, 2 for invalid settings, 3 when the model cannot be served, 1 for anything else.
    """
    _hide_memory()
    try:
        settings = load_settings(PaddleRuntimeSettings)
    except Permanent as error:
        sys.stderr.write(f"{SOURCE}: {error.message}\n")
        return 2
    logging.set_up(SOURCE, settings.log_level)
    return run_service(partial(run, settings))


def _hide_memory() -> None:
    """From the model, which runs as the same user: the environment of this process holds the store's keys."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
