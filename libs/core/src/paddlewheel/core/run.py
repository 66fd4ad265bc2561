"""Runs a service's main coroutine as a process: event loop, signals, exit code."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable

import structlog
import uvloop

from paddlewheel.core.errors import PaddlewheelError

Main = Callable[[asyncio.Event], Awaitable[None]]

_COLLECT = (700, 10, 1000)
"""Thresholds of the cyclic garbage collector: a hundredth of the full collections that it makes by default.
One visits every object that the informers hold: it stops the service for 0.5 s with 1,000 jobs, and frees
next to nothing, for objects of the API are trees. `make bench ONLY=bus` shows such pauses as p99."""

log = structlog.get_logger(__name__)


def run_service(main: Main) -> int:
    """Run `main(stop)` until it returns; SIGTERM and SIGINT set `stop`, a second signal cancels.

    Returns:
        0 when `main` returned, the error's code or 1 after an error (logged), 130 when a second signal
        cancelled it.
    """
    collect_rarely()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_supervise(main))


def collect_rarely() -> None:
    """As services do."""
    gc.set_threshold(*_COLLECT)


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
        return error.exit_code
    except Exception:
        log.exception("service failed")
        return 1
    return 0
