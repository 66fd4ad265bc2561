"""The distribution of tests over the workers of pytest-xdist: their order, and the ports of each worker.

A unit test goes to the next free worker. All other tests of a file stay on one worker, because they share
servers. xdist's own groups (`--dist loadgroup`) do not work with pytest 9.2, which computes node ids.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import pytest

from paddlewheel.core import sockets

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

TOGETHER = {
    "tests/e2e/test_digits.py": "cluster with Paddlewheel",
    "tests/e2e/docs/": "cluster with Paddlewheel",
    "tests/e2e/training/": "cluster with Paddlewheel",
    "tests/integration/cache_runtime/test_runs.py": "shared agents",
    "tests/integration/cache_runtime/test_odd_names.py": "shared agents",
}
"""Files and folders that share something costly, and what they share."""
FIRST = (
    "tests/e2e/",
    "tests/integration/cache_runtime/",
    "tests/integration/dataset_controller/",
    "tests/attacks/",
    "tests/integration/",
    "tests/contract/",
)
"""Slow folders, in the order in which their tests start. All other tests run last."""


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker its own ports: a port stays free while the server of a test restarts."""
    if worker := getattr(config, "workerinput", None):
        number, count = int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])
        pytest.MonkeyPatch().setattr(sockets, "_RANGE", ports_of(sockets._RANGE, number, count))


def ports_of(ports: range, worker: int, workers: int) -> range:
    """One worker's share of the ports."""
    return ports[worker::workers]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Return the scheduler of the process that controls the workers."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

        def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            # After each test, xdist counts the pending tests of all units that a worker has ever got.
            scope = scope_of(self.registered_collections[node][item_index])
            if all(self.assigned_work[node][scope].values()):
                del self.assigned_work[node][scope]

    # Scopes start in the order of their tests, not by their size.
    config.option.loadscopereorder = False
    return Scheduler(config, log)


def scope_of(nodeid: str) -> str:
    """The tests with the same scope run on one worker."""
    path = nodeid.partition("::")[0]
    alone = nodeid if path.startswith("tests/unit/") else path
    return next((shared for prefix, shared in TOGETHER.items() if path.startswith(prefix)), alone)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector ignores modules and tests: they exist until the run ends."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort in the workers only: without workers, tests run in the order of their files."""
    if hasattr(config, "workerinput"):
        items[:] = in_order(items)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests with those of slow folders first."""
    return sorted(items, key=lambda item: rank_of(item.nodeid))


def rank_of(nodeid: str) -> int:
    """The position of a test's folder in the order."""
    return next((place for place, path in enumerate(FIRST) if nodeid.startswith(path)), len(FIRST))
