"""A service exits with the right code after a return, a signal and an error."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterator

import pytest

from paddlewheel.core.errors import Permanent
from paddlewheel.core.run import Main, run_service


@pytest.fixture(autouse=True)
def collections_as_before() -> Iterator[None]:
    """Restore the thresholds of the garbage collector, which belong to the test process."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


async def ends_by_itself(stop: asyncio.Event) -> None:
    return None


async def is_told_to_stop(stop: asyncio.Event) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await stop.wait()


async def is_interrupted_twice(stop: asyncio.Event) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    await stop.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()


async def cannot_run(stop: asyncio.Event) -> None:
    raise Permanent("InvalidSettings", "set SAMPLE_WORKERS")


async def has_a_bug(stop: asyncio.Event) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("main", "code"),
    [(ends_by_itself, 0), (is_told_to_stop, 0), (is_interrupted_twice, 130), (cannot_run, 1), (has_a_bug, 1)],
)
def test_exit_code(main: Main, code: int) -> None:
    assert run_service(main) == code


def test_the_event_loop_is_uvloop() -> None:
    loops: list[str] = []

    async def note_loop(stop: asyncio.Event) -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)

    run_service(note_loop)
    assert loops == ["uvloop"]


def test_a_service_makes_few_full_garbage_collections() -> None:
    seen: list[tuple[int, ...]] = []

    async def main(stop: asyncio.Event) -> None:
        seen.append(gc.get_threshold())

    run_service(main)
    assert seen[0][2] >= 100
