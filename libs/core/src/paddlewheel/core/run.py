"""Runs the main coroutine of a service as a process: event loop, signals and exit code."""

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
"""Thresholds of the cyclic garbage collector, for a hundredth of the full collections of the default.

A full collection visits every object that the informers hold. With 1,000 jobs it stops the service for 0.5 s,
and it frees almost nothing, because API objects have no cycles. `make bench ONLY=bus` shows this as p99.
"""

log = structlog.get_logger(__name__)


def run_service(main: Main) -> int:
    """Run `main(stop)` until it returns. SIGTERM and SIGINT set `stop`. A second signal cancels `main`.

    Returns:
        0 when `main` returned, 130 when a second signal cancelled it. For an error, which is logged, its exit
        code, or 1.
    """
    collect_rarely()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_supervise(main))


def collect_rarely() -> None:
    """Make full garbage collections rare, as every service does."""
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
