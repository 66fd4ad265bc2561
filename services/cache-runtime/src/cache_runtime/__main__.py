"""The command `cache-runtime`."""

from __future__ import annotations

import os
import sys
from functools import partial

from cache_runtime import app
from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.engines import juicefs
from cache_runtime.facts import SOURCE
from paddlewheel.core import logging
from paddlewheel.core.errors import Permanent
from paddlewheel.core.run import run_service
from paddlewheel.core.settings import load_settings


def main(create_engine: app.EngineFactory = juicefs.create_engine) -> None:
    """The process. It exits without waiting for threads: a system call on a file system that hangs does not
    return."""
    code = run(create_engine)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(create_engine: app.EngineFactory) -> int:
    """Read settings, run until SIGTERM; returns the exit code."""
    try:
        settings = load_settings(CacheRuntimeSettings)
    except Permanent as error:
        sys.stderr.write(f"cache-runtime: {error.message}\n")
        return 2
    logging.set_up(SOURCE, settings.log_level)
    return run_service(partial(app.run, settings, create_engine))


if __name__ == "__main__":
    main()
