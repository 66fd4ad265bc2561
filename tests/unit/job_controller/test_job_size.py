"""Jobs of thousands of pods: what a pass renders, and what Linux takes as one variable."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock, patch

import pytest
from tests.unit.job_controller.builders import GATE, make_job, make_pod

from job_controller.core import plan as planning
from job_controller.core.conclude import conclude
from job_controller.core.environment import config_data, overlong_list
from job_controller.core.job import Job
from job_controller.core.job_status import Plan
from job_controller.core.model import Observed
from job_controller.core.plan import plan
from paddlewheel.contracts.conditions import find
from paddlewheel.contracts.crds.limits import VARIABLE_BYTES
from paddlewheel.operator.domain.plan import Applied, Create
from paddlewheel.testkit.paddlejobs import make_role

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MANY = 9000


@pytest.fixture
def rendered() -> Iterator[list[Mock]]:
    """Counts the manifests of pods and Services."""
    names = ("render_pod", "render_service")
    spies = [patch.object(planning, name, wraps=getattr(planning, name)) for name in names]
    yield [spy.start() for spy in spies]
    for spy in spies:
        spy.stop()


def calls(spies: list[Mock]) -> list[int]:
    return [spy.call_count for spy in spies]


def todo_of(seen: Observed) -> Plan:
    return plan(seen, GATE, NOW)


def workers(count: int, address: str = "10.{}.{}.{}") -> tuple[Any, ...]:
    places = ((index >> 16, index >> 8 & 255, index & 255) for index in range(count))
    return tuple(make_pod("worker", index, ip=address.format(*at)) for index, at in enumerate(places))


def test_pods_that_nobody_creates_now_are_not_rendered(rendered: list[Mock]) -> None:
    """While a quota refuses them, a pass tries few of them, and names all."""
    todo = todo_of(Observed(make_job(intranet="Service", worker=make_role(1200))))
    creates = [action for action in todo.actions if isinstance(action, Create)]
    kinds = [action.kind for action in creates]
    assert (kinds.count("Pod"), kinds.count("Service")) == (1200, 1200)
    assert calls(rendered) == [0, 0]
    first = next(action for action in creates if action.kind == "Pod")
    assert first.render()["metadata"]["name"] == first.key.name == "demo-worker-0"
    assert calls(rendered) == [1, 0]


def test_services_that_are_there_are_not_rendered(rendered: list[Mock]) -> None:
    job = make_job(intranet="Service", worker=make_role(1200))
    services = {job.pod_name(place): "uid" for place in job.pod_ids}
    todo = todo_of(Observed(job, workers(1200), services=services))
    assert [action.kind for action in todo.actions if isinstance(action, Create)] == ["ConfigMap"]
    assert calls(rendered) == [0, 0]


def starts(variables: dict[str, str]) -> bool:
    """Linux starts a program with these variables."""
    try:
        return subprocess.run(["/bin/true"], env=variables, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [{"worker": make_role(MANY)}, {"ps": make_role(MANY)}, {"intranet": "Host", "heter": make_role(MANY)}],
)
def test_more_addresses_than_a_variable_holds_are_refused_by_name_and_figure(spec: dict[str, Any]) -> None:
    """The figure of the message is the largest that Linux takes."""
    [role] = [name for name in ("ps", "worker", "heter") if name in spec]

    def seen(count: int) -> Observed:
        job = make_job(**{**spec, role: make_role(count)})
        # A node has few pods of the job.
        pods = tuple(replace(pod, id=pod.id._replace(role=role)) for pod in workers(count))
        return Observed(job, pods)

    message = overlong_list(seen(MANY), 36000)
    assert message.startswith(f"spec.{role}.replicas {MANY} is too large: PADDLE_")
    assert f"more than {VARIABLE_BYTES}; set it to " in message
    assert config_data(seen(MANY), 36000) is None
    fits = int(message.split(" or less")[0].rpartition(" ")[2])
    data = config_data(seen(fits), 36000)
    assert data is not None
    assert overlong_list(seen(fits), 36000) == ""
    assert starts(data)
    assert overlong_list(seen(fits + 1), 36000) != ""


def test_linux_has_this_limit() -> None:
    assert starts({"A": "x" * (VARIABLE_BYTES - 3)})
    assert not starts({"A": "x" * (VARIABLE_BYTES - 2)})


def test_such_a_job_is_blocked_and_not_told_its_addresses() -> None:
    seen = Observed(make_job(worker=make_role(MANY)), workers(MANY))
    todo = todo_of(seen)
    assert not [action for action in todo.actions if isinstance(action, Create)]
    status = conclude(seen, todo, Applied(), NOW).status
    assert status is not None
    blocked = find(status.conditions, "Blocked")
    assert blocked is not None
    assert (blocked.status, blocked.reason) == ("True", "InvalidSpec")
    assert "spec.worker.replicas 9000 is too large: PADDLE_TRAINER_ENDPOINTS would have" in blocked.message


LONG = "j" * 49


@pytest.mark.parametrize(
    ("job", "is_refused"),
    [
        (make_job(worker=make_role(9360)), False),
        (make_job(worker=make_role(9361)), True),
        (make_job(elastic=1, worker=make_role(10_000)), False),
        (make_job(intranet="Host", worker=make_role(10_000)), False),
        (make_job(LONG, intranet="Service", worker=make_role(1943)), False),
        (make_job(LONG, intranet="Service", worker=make_role(1944)), True),
    ],
)
def test_what_can_never_fit_is_refused_at_admission(job: Job, is_refused: bool) -> None:
    """The names in the Service network are known before."""
    assert [problem.partition(":")[0] for problem in job.problems] == ["spec.worker.replicas"] * is_refused
    if job.network == "Service":
        seen = Observed(job)
        assert (config_data(seen, 36000) is None) is is_refused
