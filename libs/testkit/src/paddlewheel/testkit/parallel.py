"""Which worker of pytest-xdist runs which tests, in what order, and which ports are its own.

A test goes to the next free worker, slow folders first. Tests that share costly fixtures stay together on one
worker. Both go by the path of the file, for that is what the scheduler knows of a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from paddlewheel.core import sockets

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    "tests/attacks/test_open.py": "servers that guard nothing",
    "tests/e2e/test_digits.py": "cluster with Paddlewheel",
    "tests/e2e/docs/": "cluster with Paddlewheel",
    "tests/e2e/training/": "cluster with Paddlewheel",
    "tests/e2e/devcluster/test_nodes.py": "cluster with two nodes",
    "tests/e2e/devcluster/test_addons.py": "cluster with add-ons",
    "tests/e2e/serving/": "cluster with serving-controller",
    "tests/e2e/test_tokens.py": "cluster with tokens",
    "tests/integration/cache_runtime/test_runs.py": "shared agents",
    "tests/integration/cache_runtime/test_odd_names.py": "shared agents",
    "tests/integration/devcluster/test_control_plane.py": "two control planes",
    "tests/integration/kube/test_api_server_restart.py": "control plane whose API server is killed",
    "tests/integration/cli/test_uninstall.py": "cluster to uninstall from",
    "tests/integration/job_controller/test_job_api_server.py": "control plane of jobs under stress",
    "tests/integration/trigger_controller/test_outages.py": "control plane of outages of triggers",
    "tests/integration/trigger_controller/test_attack_by_webhook.py": "control plane of attacks on triggers",
    "tests/integration/job_controller/test_volcano.py": "Volcano's API, which comes and goes",
    "tests/integration/release/": "built release",
    "tests/integration/scaffold/": "checkout with a new service",
    "tests/integration/security/test_declared_services.py": "server with declared services",
    "tests/integration/security/test_owners.py": "control plane that checks owners",
    "tests/integration/security/test_teams.py": "server with two teams",
    "tests/integration/security/test_upgrades.py": "installed chart",
    "tests/integration/sdk/test_install.py": "wheels",
    "tests/integration/serving_controller/": "Knative's API, which comes and goes",
    "tests/integration/subscribers/": "built subscriber",
}
"""Files and folders whose tests stay on one worker, and what they share."""
FIRST = (
    "tests/e2e/test_digits.py",
    "tests/e2e/docs/",
    "tests/e2e/training/",
    "tests/integration/cache_runtime/",
    "tests/integration/dataset_controller/",
    "tests/e2e/",
    "tests/integration/",
    "tests/attacks/test_open.py",
    "tests/contract/",
)
"""Files and folders in the order of their tests; all others come last."""


def scope_of(nodeid: str) -> str:
    """Tests of one scope stay on one worker; most are alone in theirs."""
    return next((shared for path, shared in TOGETHER.items() if nodeid.startswith(path)), nodeid)


def rank_of(nodeid: str) -> int:
    """The place of a test in the order."""
    return next((place for place, path in enumerate(FIRST) if nodeid.startswith(path)), len(FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """In the process that controls the workers."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    # Scopes are given out in the order of their tests, not by their size.
    config.option.loadscopereorder = False
    return Scheduler(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """A port is free until somebody listens there, also that of a server that is down for a moment."""
    if told := getattr(config, "workerinput", None):
        number, count = int(told["workerid"].removeprefix("gw")), int(told["workercount"])
        pytest.MonkeyPatch().setattr(sockets, "_RANGE", ports_of(sockets._RANGE, number, count))


def ports_of(ports: range, worker: int, workers: int) -> range:
    """One worker's share of the ports."""
    return ports[worker::workers]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In workers only: without them, tests run in the order of their files."""
    if hasattr(config, "workerinput"):
        items[:] = in_order(items)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The same order in every worker."""
    return sorted(items, key=lambda item: rank_of(item.nodeid))
