"""`python -m trigger_controller`: read settings, run the app, give its exit code."""

from __future__ import annotations

import asyncio
import sys

from paddlewheel.core import logging
from paddlewheel.core.run import run_service
from paddlewheel.core.settings import load_settings
from trigger_controller.app import serve
from trigger_controller.config import Settings
from trigger_controller.domain import names


async def _main(stop: asyncio.Event) -> None:
    settings = load_settings(Settings)
    logging.set_up(names.SERVICE, settings.log_level)
    await serve(settings, stop)


def main() -> int:
    """Exit code: 0 after a clean stop, 1 after an error."""
    logging.set_up(names.SERVICE)
    return run_service(_main)


if __name__ == "__main__":
    sys.exit(main())
