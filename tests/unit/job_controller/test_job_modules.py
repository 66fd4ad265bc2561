"""A plain job enters the core of the service and few of its features."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tests.unit.job_controller.conftest import JobHarness

from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

MOST_MODULES = 30


@contextmanager
def entered(package: str) -> Iterator[set[str]]:
    """The modules of a package in which a function is called meanwhile."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        if event == "call" and name.partition(".")[0] == package:
            found.add(name)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def test_a_pass_without_work_over_a_plain_job_enters_few_modules(harness: JobHarness) -> None:
    key = await harness.to_running(make_paddle_job(worker=make_role(2)))
    with entered("job_controller") as modules:
        await harness.reconcile_stale(key)
    assert len(modules) <= MOST_MODULES, f"{len(modules)}: {sorted(modules)}"
