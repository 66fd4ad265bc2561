"""PaddleServices on real Knative Serving: from zero and back, updates and canaries under load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.echo import Served
from tests.e2e.serving.load import load
from tests.e2e.serving.services import (
    STEPS,
    answered,
    condition,
    host_of,
    is_over,
    is_true,
    service,
    serving_cluster,
    start,
)

from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FROM_ZERO = {"minScale": 0, "maxScale": 3, "window": "6s"}
WARM = {"minScale": 1, "maxScale": 3, "window": "6s"}
UPDATES = 10


@pytest.fixture(scope="module")
def served(test_run: TestRun) -> Iterator[Served]:
    """A cluster with Knative Serving and serving-controller."""
    with serving_cluster(test_run.claim_cluster("knative-serving"), "knative") as made:
        yield made


def pods(served: Served, name: str) -> set[str]:
    """Names of the pods that serve it."""
    found = served.items("pods", "--selector", f"serving.knative.dev/service={name}")
    return {pod["metadata"]["name"] for pod in found if not pod["metadata"].get("deletionTimestamp")}


async def test_a_service_scales_to_zero_and_back_and_no_request_fails(served: Served) -> None:
    await start(served, "sleepy", "awake", mode="Auto", service=FROM_ZERO)
    assert served.kubectl("get", "psvc", "sleepy", "-o", "jsonpath={.status.mode}") == "Knative"
    woken = set()
    for _ in range(2):
        await eventually(lambda: not pods(served, "sleepy"), within=120)
        assert is_true(served, "sleepy", "Ready"), "asleep is ready"
        async with load(served.host, host_of("sleepy"), kept=1, new=1) as answers:
            await answered(answers, "awake")
            woken |= pods(served, "sleepy")
        assert answers.missed == 0
    assert len(woken) >= 2, "the second time it was not from zero"


async def test_no_request_fails_while_a_service_is_updated_again_and_again(served: Served) -> None:
    await start(served, "updates", "v0", mode="Knative", service=WARM)
    async with load(served.host, host_of("updates")) as answers:
        for n in range(1, UPDATES + 1):
            served.apply(service("updates", f"TARGET=v{n}", mode="Knative", service=WARM))
            await answered(answers, f"v{n}")
    assert (answers.missed, answers.misses) == (0, [])


async def test_a_failing_canary_is_rolled_back(served: Served) -> None:
    spec = {"mode": "Knative", "service": WARM, "rollout": {}}
    await start(served, "failing", "good", **spec)
    async with load(served.host, host_of("failing"), path="/?ms=60") as answers:
        served.apply(service("failing", "TARGET=bad ERRORS=20", **spec))
        await answered(answers, "bad")
        await eventually(lambda: is_true(served, "failing", "RolledBack"))
    assert condition(served, "failing", "RolledBack")[1] == "TooManyErrors"
    assert answers.missed == answers.failed["bad"]


async def test_a_good_canary_becomes_stable(served: Served) -> None:
    spec = {"mode": "Knative", "service": WARM, "rollout": {"steps": STEPS}}
    await start(served, "good", "old", **spec)
    async with load(served.host, host_of("good")) as answers:
        served.apply(service("good", "TARGET=new", **spec))
        await eventually(lambda: is_over(served, "good"))
    assert not is_true(served, "good", "RolledBack")
    assert answers.missed == 0
