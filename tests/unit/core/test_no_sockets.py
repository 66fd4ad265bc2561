"""The guards of the unit tests are effective."""

from __future__ import annotations

import asyncio
import socket

import pytest

from paddlewheel.testkit import tasks


def test_a_unit_test_cannot_open_a_socket() -> None:
    with pytest.warns(UserWarning, match="tried to use socket"), pytest.raises(RuntimeError):
        socket.socket(socket.AF_INET)


pytest_plugins = ["pytester"]


def test_a_test_that_leaves_a_task_behind_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "TASKS_END_GRACE_SECONDS", 0.1)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(
        """
        import asyncio
        pytest_plugins = ["paddlewheel.testkit.tasks"]
        tasks = []
        async def test_leaves_one():
            tasks.append(asyncio.create_task(asyncio.Event().wait()))
        async def test_ends_its_own():
            task = asyncio.create_task(asyncio.Event().wait())
            task.cancel()
        def test_is_not_async():
            pass
        """
    )
    outcome = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    outcome.assert_outcomes(passed=3, errors=1)


async def test_asyncio_still_works() -> None:
    await asyncio.sleep(0)
