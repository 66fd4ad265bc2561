"""Runs a service's main coroutine as a process: event loop, signals, exit code."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import structlog
import uvloop

from paddlewheel.core.errors import PaddlewheelError

Main = Callable[[asyncio.Event], Awaitable[None]]

log = structlog.get_logger(__name__)


def run_service(main: Main) -> int:
    """Run `main(stop)` until it returns; SIGTERM and SIGINT set `stop`, a second signal cancels.

    Returns:
        0 when `main` returned, 1 after an error (logged), 130 when a second signal cancelled it.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_supervise(main))


async def _supervise(main: Main) -> int:
    stop = asyncio.Event()
    task = asyncio.ensure_future(main(stop))
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        return await _outcome(task)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _outcome(task: asyncio.Future[None]) -> int:
    try:
        await task
    except asyncio.CancelledError:
        return 130
    except PaddlewheelError as error:
        log.error("service cannot run", error=str(error))
        return 1
    except Exception:
        log.exception("service failed")
        return 1
    return 0
