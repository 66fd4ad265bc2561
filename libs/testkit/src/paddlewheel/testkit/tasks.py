"""A test that leaves an asyncio task behind fails: the task would die unseen, with whatever it held."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator

import pytest

TASKS_END_GRACE_SECONDS = 60.0
"""How long tasks may take to end after they were cancelled."""


@pytest.fixture(autouse=True)
def fail_on_leftover_tasks(request: pytest.FixtureRequest) -> None:
    """Set up before every other fixture of an async test, so that it looks after they are torn down."""
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("leftover_tasks")


@pytest.fixture
async def leftover_tasks() -> AsyncIterator[None]:
    """Compare the tasks of the test's loop before and after."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=TASKS_END_GRACE_SECONDS)
    if not left:
        return
    names = sorted(repr(task.get_coro()) for task in left)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    pytest.fail(f"the test left {len(names)} tasks behind: {names}")
