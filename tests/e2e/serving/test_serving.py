"""PaddleServices on real pods behind a real gateway: updates, canaries, faults, a killed controller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.echo import ECHO, Served, write_echo
from tests.e2e.serving.load import Answers, load

from paddlewheel.devcluster.addons.ready import NAMESPACES
from paddlewheel.devcluster.cluster import down, up
from paddlewheel.devcluster.commands import tool
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.long

CHART = Path(__file__).parents[3] / "deploy" / "charts" / "paddlewheel"
SYSTEM = "paddle-system"
GATEWAY = NAMESPACES["gateway"]
VALUES = (
    "jobController.replicas=0",
    "datasetController.replicas=0",
    "triggerController.enabled=false",
    f"servingController.gateway={GATEWAY}/paddlewheel",
    f"servingController.figures=http://gateway-metrics.{GATEWAY}.svc:9100/metrics",
    "servingController.pullPolicy=IfNotPresent",
)
UPDATES, KILLS = 10, 3
STEPS = [{"percent": 20, "minSeconds": 1, "minRequests": 20}, {"percent": 100}]
"""Of a short rollout."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, test_run: TestRun) -> Iterator[Served]:
    """A cluster with the gateway and serving-controller."""
    name = test_run.claim_cluster("serving")
    try:
        echo = write_echo(tmp_path_factory.mktemp("echo"))
        made = Served(up(ClusterSpec(name, nodes=1, addons=("gateway",)), images=(echo,)))
        _install(made)
        yield made
    finally:
        down(name)


def _install(served: Served) -> None:
    paddlewheel = str(Path(sys.executable).parent / "paddlewheel")
    images = ("images", "load", "serving-controller", "nats", "--name", served.cluster.name)
    values = [argument for value in VALUES for argument in ("--set", value)]
    release = ("upgrade", "--install", "paddlewheel", str(CHART), "--namespace", SYSTEM, "--create-namespace")
    kubeconfig = ("--kubeconfig", str(served.cluster.kubeconfig))
    for argv in ((paddlewheel, *images), (tool("helm"), *release, "--wait", *kubeconfig, *values)):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr


def service(name: str, settings: str, **spec: Any) -> Mapping[str, Any]:
    """Of one pod; `settings` are the variables of the echo server."""
    image, _, tag = ECHO.rpartition(":")
    return {
        "apiVersion": "elasticserving.paddlepaddle.org/v1",
        "kind": "PaddleService",
        "metadata": {"name": name},
        "spec": {
            "default": {"containerImage": image, "tag": tag, "port": 8080, "arg": settings},
            "resources": {
                "requests": {"cpu": "10m", "memory": "16Mi"},
                "limits": {"cpu": "1", "memory": "64Mi"},
            },
            "service": {"minScale": 1, "maxScale": 1, "metric": "cpu"},
            "mode": "Kubernetes",
            **spec,
        },
    }


def condition(served: Served, name: str, type_: str) -> tuple[str, str, str]:
    """Status, reason and message, of the spec as it is now; empty before."""
    found = json.loads(served.kubectl("get", "psvc", name, "-o", "json"))
    status = found.get("status", {})
    if status.get("observedGeneration") != found["metadata"]["generation"]:
        return "", "", ""
    named: dict[str, str] = next((c for c in status["conditions"] if c["type"] == type_), {})
    return named.get("status", ""), named.get("reason", ""), named.get("message", "")


def is_true(served: Served, name: str, type_: str) -> bool:
    return condition(served, name, type_)[0] == "True"


def is_over(served: Served, name: str) -> bool:
    """The rollout has ended, in one way or the other."""
    is_waiting = condition(served, name, "Progressing")[0] != "False"
    return not is_waiting or is_true(served, name, "RolledBack")


async def start(served: Served, name: str, text: str, **spec: Any) -> None:
    """The service answers, through the gateway as well."""
    served.apply(service(name, f"TARGET={text}", **spec))
    await eventually(lambda: is_true(served, name, "Ready"), within=90)
    async with load(served.host, host_of(name), kept=1, new=0) as answers:
        await eventually(lambda: answers.by_text[text] > 0)


async def answered(answers: Answers, text: str) -> None:
    """A version has given an answer."""
    await eventually(lambda: answers.by_text[text] > 0, within=90)


def host_of(name: str) -> str:
    return f"{name}.default.example.com"


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
        await eventually(lambda: is_true(served, name, "RolledBack"), within=60)
        during = answers.by_text.total() - began
    assert condition(served, name, "RolledBack")[1] == reason
    assert answers.by_text["bad"] <= 0.1 * during + 5
    assert answers.missed == answers.failed["bad"]


async def test_a_good_canary_becomes_stable(served: Served) -> None:
    await start(served, "good", "old", rollout={"steps": STEPS})
    async with load(served.host, host_of("good")) as answers:
        served.apply(service("good", "TARGET=new", rollout={"steps": STEPS}))
        await eventually(lambda: is_over(served, "good"), within=90)
    assert not is_true(served, "good", "RolledBack")
    assert answers.missed == 0


async def test_rollouts_end_although_the_controller_is_killed(served: Served) -> None:
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
            await eventually(lambda: condition(served, "blind", "Progressing")[1] == "NoFigures", within=60)
            await eventually(lambda: is_true(served, "blind", "RolledBack"), within=60)
        assert condition(served, "blind", "RolledBack")[1] == "DeadlineExceeded"
        assert answers.missed == 0
    finally:
        _select(served, {**selector, "absent": None})


def _select(served: Served, selector: Mapping[str, str | None]) -> None:
    patch = json.dumps({"spec": {"selector": selector}})
    served.kubectl("patch", "service", "gateway-metrics", "-n", GATEWAY, "--type", "merge", "-p", patch)
