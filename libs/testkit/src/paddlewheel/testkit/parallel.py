"""How pytest-xdist spreads tests over workers (`--dist loadgroup`), and which ports each worker may use.

A unit test goes to the next free worker. All other tests of a file stay on one worker, because they share
servers. Files that share something costly carry the same mark `pytest.mark.xdist_group("name")`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paddlewheel.core import sockets

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group and sort in the workers only: without workers, tests run in the order of their files."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        path = item.nodeid.partition("::")[0]
        if not path.startswith("tests/unit/") and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(path))
    items[:] = in_order(items)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Slow folders first; tests of one group stay together, at the place of the first of them."""
    places: dict[str, tuple[int, int]] = {}
    for number, item in enumerate(items):
        place = (rank_of(item.nodeid), number)
        places[_group_of(item)] = min(places.get(_group_of(item), place), place)
    return sorted(items, key=lambda item: places[_group_of(item)])


def _group_of(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else item.nodeid


def rank_of(nodeid: str) -> int:
    """The position of a test's folder in the order."""
    return next((place for place, path in enumerate(FIRST) if nodeid.startswith(path)), len(FIRST))
