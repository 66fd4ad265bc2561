"""PaddleServices of the echo server: installed, started, and what their status says."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.echo import ECHO, Served, write_echo
from tests.e2e.serving.load import Answers, load

from paddlewheel.devcluster.addons.ready import NAMESPACES
from paddlewheel.devcluster.cluster import down, up
from paddlewheel.devcluster.commands import tool
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.testkit.rights import keep
from paddlewheel.testkit.wait import eventually

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
STEPS = [{"percent": 20, "minSeconds": 1, "minRequests": 20}, {"percent": 100}]
"""Of a short rollout."""


@contextmanager
def serving_cluster(name: str, addon: str) -> Iterator[Served]:
    """A cluster of one node with this add-on, the echo server's image and serving-controller."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            echo = write_echo(Path(folder))
            made = Served(up(ClusterSpec(name, nodes=1, addons=(addon,)), images=(echo,)))
        install(made)
        yield made
    finally:
        keep(name)
        down(name)


def install(served: Served) -> None:
    """serving-controller and the bus, without the other services."""
    paddlewheel("images", "load", "serving-controller", "nats", "bus-auth", "--name", served.cluster.name)
    values = [argument for value in VALUES for argument in ("--set", value)]
    release = ("upgrade", "--install", "paddlewheel", str(CHART), "--namespace", SYSTEM, "--create-namespace")
    kubeconfig = ("--kubeconfig", str(served.cluster.kubeconfig))
    _run(tool("helm"), *release, "--wait", *kubeconfig, *values)


def paddlewheel(*arguments: str) -> str:
    """What the command prints."""
    return _run(tool("paddlewheel"), *arguments)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def facts_by_revision(served: Served, name: str) -> dict[str, list[str]]:
    """Short types of the facts about a service, in their order."""
    told = paddlewheel(
        "events", "-A", "--cluster", served.cluster.name, "--since", "all", "--no-follow", "-o", "json"
    )
    facts: dict[str, list[str]] = {}
    for event in map(json.loads, told.splitlines()):
        if event["data"].get("service", {}).get("name") == name and "revision" in event["data"]:
            facts.setdefault(event["data"]["revision"], []).append(event["type"].rpartition(".")[2])
    return facts


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
    await eventually(lambda: is_true(served, name, "Ready"))
    async with load(served.host, host_of(name), kept=1, new=0) as answers:
        await eventually(lambda: answers.by_text[text] > 0)


async def answered(answers: Answers, text: str) -> None:
    """A version has given an answer."""
    await eventually(lambda: answers.by_text[text] > 0)


def host_of(name: str) -> str:
    return f"{name}.default.example.com"
