"""`python -m dataset_controller`: read settings, run the app, give its exit code."""

from __future__ import annotations

import asyncio
import sys

from dataset_controller.app import serve
from dataset_controller.config import Settings
from dataset_controller.domain.names import SOURCE
from paddlewheel.core import logging
from paddlewheel.core.run import run_service
from paddlewheel.core.settings import load_settings


async def _main(stop: asyncio.Event) -> None:
    settings = load_settings(Settings)
    logging.set_up(SOURCE, settings.log_level)
    await serve(settings, stop)


def main() -> int:
    """Exit code: 0 after a clean stop, 1 after an error."""
    logging.set_up(SOURCE)
    return run_service(_main)


if __name__ == "__main__":
    sys.exit(main())
