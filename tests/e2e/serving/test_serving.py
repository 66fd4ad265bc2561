"""PaddleServices on real pods behind a real gateway: updates, canaries, faults, a killed controller."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.echo import Served
from tests.e2e.serving.load import load
from tests.e2e.serving.services import (
    GATEWAY,
    STEPS,
    SYSTEM,
    answered,
    condition,
    facts_by_revision,
    host_of,
    is_over,
    is_true,
    service,
    serving_cluster,
    start,
)

from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

UPDATES, KILLS = 10, 3


@pytest.fixture(scope="module")
def served(test_run: TestRun) -> Iterator[Served]:
    """A cluster with the gateway and serving-controller."""
    with serving_cluster(test_run.claim_cluster("serving"), "gateway") as made:
        yield made


def kill_controller(served: Served) -> None:
    """SIGKILL; its pod is replaced at once, so that the kubelet does not hold the next start back."""
    (pod,) = served.items("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/name=serving-controller")
    name = pod["metadata"]["name"]
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _is_of(process, name):
            os.kill(int(process.name), signal.SIGKILL)
    served.kubectl("delete", "pod", "-n", SYSTEM, name, "--force", "--grace-period=0")


def _is_of(process: Path, pod: str) -> bool:
    """A controller of this pod: the names of a test run's pods are unique."""
    try:
        is_named = f"HOSTNAME={pod}".encode() in (process / "environ").read_bytes().split(b"\0")
        return is_named and b"serving_controller" in (process / "cmdline").read_bytes()
    except OSError:
        return False


async def test_no_request_fails_while_a_service_is_updated_again_and_again(served: Served) -> None:
    await start(served, "updates", "v0")
    async with load(served.host, host_of("updates")) as answers:
        for n in range(1, UPDATES + 1):
            served.apply(service("updates", f"TARGET=v{n}"))
            await answered(answers, f"v{n}")
    assert (answers.missed, answers.misses) == (0, [])


@pytest.mark.parametrize(
    ("name", "fault", "reason"), [("failing", "ERRORS=20", "TooManyErrors"), ("slow", "SLOWER=3", "TooSlow")]
)
async def test_a_worse_canary_is_rolled_back_and_hits_its_share_only(
    served: Served, name: str, fault: str, reason: str
) -> None:
    await start(served, name, "good", rollout={})
    async with load(served.host, host_of(name), path="/?ms=60") as answers:
        served.apply(service(name, f"TARGET=bad {fault}", rollout={}))
        await answered(answers, "bad")
        began = answers.by_text.total()
        await eventually(lambda: is_true(served, name, "RolledBack"))
        during = answers.by_text.total() - began
    assert condition(served, name, "RolledBack")[1] == reason
    assert answers.by_text["bad"] <= 0.1 * during + 5
    assert answers.missed == answers.failed["bad"]


async def test_a_good_canary_becomes_stable(served: Served) -> None:
    await start(served, "good", "old", rollout={"steps": STEPS})
    async with load(served.host, host_of("good")) as answers:
        served.apply(service("good", "TARGET=new", rollout={"steps": STEPS}))
        await eventually(lambda: is_over(served, "good"))
    assert not is_true(served, "good", "RolledBack")
    assert answers.missed == 0


async def test_rollouts_end_with_every_fact_told_once_although_the_controller_is_killed(
    served: Served,
) -> None:
    await start(served, "killed", "v0", rollout={"steps": STEPS})
    async with load(served.host, host_of("killed")) as answers:
        for n in range(1, KILLS + 1):
            served.apply(service("killed", f"TARGET=v{n}", rollout={"steps": STEPS}))
            if n > 1:
                await answered(answers, f"v{n}")
            kill_controller(served)
            await eventually(lambda: is_over(served, "killed"), within=120)
    assert not is_true(served, "killed", "RolledBack")
    assert answers.missed == 0
    told = sorted(facts_by_revision(served, "killed").values())
    rollout = ["RevisionReady", "CanaryStarted", "CanaryPromoted"]
    assert told == [*[rollout] * KILLS, ["RevisionReady", "ServiceReady"]]


async def test_what_cannot_start_gets_no_requests_and_says_why(served: Served) -> None:
    await start(served, "stuck", "good")
    missing = service("stuck", "TARGET=never")
    missing["spec"]["default"]["tag"] = "absent"
    async with load(served.host, host_of("stuck")) as answers:
        served.apply(missing)
        await eventually(lambda: "mage" in condition(served, "stuck", "Progressing")[2], within=120)
    assert is_true(served, "stuck", "Ready")
    assert set(answers.by_text) == {"good"}
    assert answers.missed == 0


async def test_a_route_that_is_deleted_is_made_again(served: Served) -> None:
    await start(served, "routed", "good")
    served.kubectl("delete", "httproute", "routed")
    async with load(served.host, host_of("routed"), kept=1, new=0) as answers:
        await eventually(lambda: answers.by_text["good"] > 0)


async def test_a_canary_waits_for_figures_and_is_rolled_back_at_its_deadline(served: Served) -> None:
    rollout = {"steps": STEPS, "deadlineSeconds": 20}
    await start(served, "blind", "good", rollout=rollout)
    source = json.loads(served.kubectl("get", "service", "gateway-metrics", "-n", GATEWAY, "-o", "json"))
    selector = source["spec"]["selector"]
    _select(served, {**selector, "absent": "yes"})
    try:
        async with load(served.host, host_of("blind")) as answers:
            served.apply(service("blind", "TARGET=new", rollout=rollout))
            await eventually(lambda: condition(served, "blind", "Progressing")[1] == "NoFigures")
            await eventually(lambda: is_true(served, "blind", "RolledBack"))
        assert condition(served, "blind", "RolledBack")[1] == "DeadlineExceeded"
        assert answers.missed == 0
    finally:
        _select(served, {**selector, "absent": None})


def _select(served: Served, selector: Mapping[str, str | None]) -> None:
    patch = json.dumps({"spec": {"selector": selector}})
    served.kubectl("patch", "service", "gateway-metrics", "-n", GATEWAY, "--type", "merge", "-p", patch)
