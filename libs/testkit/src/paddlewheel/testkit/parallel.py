"""Which tests run on which worker of pytest-xdist, and when: those of slow folders first.

Tests that share a costly fixture of module, package or session scope carry the mark `xdist_group`, which
keeps them on one worker. Those that use a fixture named in `ONE_WORKER` get it here.
"""

from __future__ import annotations

import pytest

ONE_WORKER = ("paddlewheel_cluster", "two_nodes", "shared_runtimes")
"""Session fixtures too large to be started by every worker that needs one."""
FIRST = (
    "tests/e2e/",
    "tests/integration/cache_runtime/",
    "tests/integration/dataset_controller/",
    "tests/integration/",
    "tests/contract/",
)
"""Folders in the order of their tests; what is in none of them comes last."""


def rank(path: str) -> int:
    """The place of a test by the path of its file."""
    return next((place for place, folder in enumerate(FIRST) if path.startswith(folder)), len(FIRST))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In workers only: without them, tests run in the order of their files."""
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=lambda item: rank(item.nodeid))
    for item in items:
        for name in ONE_WORKER:
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(name))
