"""One stage of the demo: drawn while it runs, timed when it ends."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from paddlewheel.cli.demo.model import Outcome
from paddlewheel.cli.demo.view import View


@asynccontextmanager
async def timed_stage(name: str, view: View, outcome: Outcome) -> AsyncIterator[None]:
    """Draw a stage and keep its seconds."""
    view.stage(name)
    start = time.monotonic()
    yield
    outcome.seconds[name] = round(time.monotonic() - start, 1)
    view.stage_done(outcome.seconds[name])
