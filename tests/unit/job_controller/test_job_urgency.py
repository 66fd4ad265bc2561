"""Which change of a pod is looked at without waiting for others."""

from __future__ import annotations

import pytest

from job_controller.domain.policies.urgency import may_turn_phase
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.paddlejobs import ended_status, running_status

PENDING, RUNNING = {"phase": "Pending"}, running_status("10.0.0.1")
SUCCEEDED, FAILED = ended_status(), ended_status(exit_code=1)


def make_pod(status: Object, role: str = "worker") -> Object:
    metadata = {"name": "demo", "namespace": "default", "labels": {"paddle-res-type": role}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, "status": status}


@pytest.mark.parametrize(
    ("status", "others", "expected"),
    [
        pytest.param(RUNNING, [RUNNING], True, id="the last one runs"),
        pytest.param(RUNNING, [SUCCEEDED], True, id="the last one runs, another is done"),
        pytest.param(RUNNING, [PENDING], False, id="another does not run yet"),
        pytest.param(SUCCEEDED, [SUCCEEDED], True, id="the last one is done"),
        pytest.param(SUCCEEDED, [RUNNING], False, id="another still runs"),
        pytest.param(FAILED, [RUNNING], True, id="one failure is enough"),
        pytest.param(PENDING, [PENDING], False, id="created in a burst"),
    ],
)
def test_only_what_may_turn_the_phase_is_urgent(status: Object, others: list[Object], expected: bool) -> None:
    pods = [make_pod(other) for other in others]
    assert may_turn_phase(make_pod(status), [make_pod(status), *pods]) is expected


def test_servers_that_run_on_do_not_hold_the_workers_end_back() -> None:
    done, server = make_pod(SUCCEEDED), make_pod(RUNNING, role="ps")
    assert may_turn_phase(done, [done, server])
