"""The commands of docs/tasks/access.md let clients in, with the tokens of a real kubelet."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.echo import Served

from paddlewheel.devcluster.cluster import running_cluster
from paddlewheel.devcluster.commands import tool
from paddlewheel.devcluster.spec import ClusterSpec
from paddlewheel.testkit.charts import CHARTS, REPOSITORY
from paddlewheel.testkit.rights import keep
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SYSTEM, TEAM, ACCOUNT = "paddle-system", "team-a", "notifier"
PADDLEWHEEL = tool("paddlewheel")
IMAGE = "paddlewheel/job-controller:dev"
"""It is there, and has a Python."""
VALUES = (
    "datasetController.replicas=0",
    "triggerController.enabled=false",
    "servingController.enabled=false",
    "jobController.gate.enabled=false",
)
SLEEP = {"name": "main", "image": IMAGE, "command": ["python", "-c", "import time; time.sleep(3600)"]}
JOB = {
    "apiVersion": "batch.paddlepaddle.org/v1",
    "kind": "PaddleJob",
    "metadata": {"name": "short", "namespace": TEAM},
    "spec": {
        "worker": {
            "replicas": 1,
            "template": {
                "spec": {"containers": [{"name": "train", "image": IMAGE, "command": ["python", "-c", ""]}]}
            },
        }
    },
}


@pytest.fixture(scope="module")
def cluster(test_run: TestRun) -> Iterator[Served]:
    """One node with the bus and job-controller. Helm waits until they are ready, by its tokens."""
    with running_cluster(ClusterSpec(test_run.claim_cluster("tokens"), nodes=1)) as running:
        load = ("images", "load", "bus-auth", "nats", "job-controller", "--name", running.name)
        _check(subprocess.run([PADDLEWHEEL, *load], capture_output=True, text=True, timeout=600))
        release = ("upgrade", "--install", "paddlewheel", str(CHARTS / "paddlewheel"), "--wait")
        where = ("--namespace", SYSTEM, "--create-namespace", "--kubeconfig", str(running.kubeconfig))
        values = [argument for value in VALUES for argument in ("--set", value)]
        install = [tool("helm"), *release, *where, *values]
        _check(subprocess.run(install, capture_output=True, text=True, timeout=300))
        try:
            yield Served(running)
        finally:
            keep(running.name)


def _check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


class Reader:
    """A user who follows docs/tasks/access.md."""

    def __init__(self, cluster: Served, folder: Path) -> None:
        page = (REPOSITORY / "docs/tasks/access.md").read_text()
        blocks = re.findall(r"```bash[^\n]*\n(.*?)```", page, re.DOTALL)
        # Some sections repeat a command of the section before.
        self.commands = list(dict.fromkeys("".join(blocks).splitlines()))
        [values] = re.findall(r"```yaml\n(nats:\n.*?)```", page, re.DOTALL)
        (folder / "teams.yaml").write_text(values)
        self._folder = folder
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(cluster.cluster.kubeconfig),
            "PATH": f"{Path(tool('kubectl')).parent}:{os.environ['PATH']}",
        }

    def run(self, word: str) -> None:
        """The commands of the page with this word, once each."""
        for command in [command for command in self.commands if word in command]:
            self.commands.remove(command)
            own = command.replace("teams.yaml", str(self._folder / "teams.yaml"))
            shell = ["bash", "-euo", "pipefail", "-c", own]
            _check(
                subprocess.run(shell, cwd=REPOSITORY, env=self._environment, capture_output=True, text=True)
            )


def pod_of(account: str) -> Mapping[str, Any]:
    """A program of a team, as docs/tasks/access.md describes it."""
    token = {"path": "token", "audience": "paddlewheel-bus", "expirationSeconds": 3600}
    sources = [{"configMap": {"name": "bus-ca"}}, {"serviceAccountToken": token}]
    container = {**SLEEP, "volumeMounts": [{"name": "bus", "mountPath": "/etc/bus", "readOnly": True}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": account, "namespace": TEAM},
        "spec": {
            "serviceAccountName": account,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [{"name": "bus", "projected": {"sources": sources}}],
        },
    }


def events(cluster: Served, folder: Path) -> tuple[int, str]:
    """`paddlewheel events` with what the kubelet has mounted into the pod; exit code and output."""
    for file in ("ca.crt", "token"):
        read = f"print(open('/etc/bus/{file}').read(), end='')"
        content = cluster.kubectl("exec", "-n", TEAM, ACCOUNT, "--", "python", "-c", read)
        (folder / file).write_text(content)
    address = cluster.kubectl("get", "service", "nats", "-n", SYSTEM, "-o", "jsonpath={.spec.clusterIP}")
    bus = {
        "NATS_URL": f"tls://{address}:4222",
        "NATS_TLS_DIR": str(folder),
        "NATS_TLS_HOSTNAME": "nats",
        "NATS_TOKEN_FILE": str(folder / "token"),
        "NATS_TEAM": "vision",
    }
    command = [PADDLEWHEEL, "events", "--since", "all", "--no-follow", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **bus})
    return done.returncode, done.stdout + done.stderr


def types_of(output: str) -> list[str]:
    """Short names of the facts. A note that there are none is no fact."""
    return [
        json.loads(line)["type"].rpartition(".")[2] for line in output.splitlines() if line.startswith("{")
    ]


def is_succeeded(cluster: Served) -> bool:
    found = json.loads(cluster.kubectl("get", "paddlejob", "short", "-n", TEAM, "-o", "json"))
    return bool(found.get("status", {}).get("phase") == "Completed")


async def test_the_kubelets_tokens_let_services_work_and_a_bound_pod_read(
    cluster: Served, tmp_path: Path
) -> None:
    cluster.kubectl("create", "namespace", TEAM)
    cluster.kubectl("create", "serviceaccount", ACCOUNT, "-n", TEAM)
    reader = Reader(cluster, tmp_path)
    reader.run("configmap bus-ca")
    cluster.apply(pod_of(ACCOUNT), JOB)
    cluster.kubectl("wait", "pod", ACCOUNT, "-n", TEAM, "--for=condition=Ready", "--timeout=120s")
    await eventually(partial(is_succeeded, cluster), within=120, every=1, what="the job succeeds")

    async def refused() -> bool:
        """The command gives up after 5 s. A busy bus-auth or API server may answer later."""
        code, said = events(cluster, tmp_path)
        assert code != 0
        assert "authorization violation" in said.lower(), said
        return True

    await eventually(refused, every=1)
    reader.run("helm upgrade")
    reader.run("create rolebinding")

    async def told() -> list[str]:
        code, said = events(cluster, tmp_path)
        assert code == 0, said
        assert "JobSucceeded" in types_of(said)
        return types_of(said)

    await eventually(told, every=1)

    reader.run("rollout restart")
    assert not reader.commands
    cluster.kubectl("rollout", "status", "deployment/bus-auth", "-n", SYSTEM, "--timeout=120s")
