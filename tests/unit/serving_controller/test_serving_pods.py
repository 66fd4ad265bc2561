"""The message about a container that ends again and again."""

from __future__ import annotations

from typing import Any

import pytest

from serving_controller.domain.engines import kubernetes
from serving_controller.domain.pods import trouble_of

ENDED = {"exitCode": 3, "message": "NoModel: s3://models/none is empty"}
WHY = "container main ended with exit code 3: NoModel: s3://models/none is empty"
DEPLOYMENT = {
    "metadata": {"generation": 1},
    "spec": {
        "replicas": 1,
        "template": {
            "spec": {"containers": [{"ports": [{"containerPort": 8080}], "startupProbe": {"httpGet": {}}}]}
        },
    },
    "status": {"observedGeneration": 1, "replicas": 1},
}


def pod(state: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    container = {"name": "main", "ready": False, "state": state, "lastState": last}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [container]}}


def message(state: dict[str, Any], last: dict[str, Any]) -> str:
    return kubernetes._state(DEPLOYMENT, [pod(state, last)], 0).message


@pytest.mark.parametrize(
    ("state", "last"),
    [
        ({"terminated": ENDED}, {}),
        ({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}, {"terminated": ENDED}),
        ({"running": {}}, {"terminated": ENDED}),
        ({"terminated": ENDED}, {"terminated": ENDED}),
    ],
    ids=["ended", "waits", "runs again", "ended again"],
)
def test_it_is_the_cause_in_every_state_between_the_restarts(
    state: dict[str, Any], last: dict[str, Any]
) -> None:
    assert message(state, last) == WHY


def test_a_container_that_never_ended_loads_its_model() -> None:
    assert message({"running": {}}, {}) == "the container runs, and has not loaded its model yet"
    assert trouble_of([pod({"running": {}}, {})]) is None
