"""A PaddleJob on the cluster, in a namespace of its own, and all that its status has said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.health import warnings_in

from paddlewheel.cli.target import Target
from paddlewheel.cli.tools import end
from paddlewheel.testkit.wait import eventually

IMAGE, CODE, WITHIN = "paddlewheel/paddle-cpu:dev", "code", 240
HEALTHY_PHASES = {"Pending": 0, "Starting": 0, "Running": 1, "Completed": 2}
"""Their order. Pods start one after the other: while some run, others are to start and none is starting, the
phase is Pending once more."""
HEALTHY_CONDITIONS = {"Accepted", "Admitted", "Running", "Complete"}
Manifest = dict[str, Any]
Status = dict[str, Any]


def make_role(replicas: int, program: str, folder: Path | None = None, **environment: str) -> Manifest:
    """Pods that run a program of this folder of tests.

    Args:
        folder: of this machine, which the nodes of an embedded cluster share; becomes `/checkpoints`.
    """
    container: Manifest = {
        "name": "main",
        "image": IMAGE,
        # A shell of its own, so that the program is not process 1, which no signal from inside ends.
        "command": ["sh", "-c", f"python /code/{program}; exit $?"],
        "env": [
            {"name": name, "value": value} for name, value in {"OMP_NUM_THREADS": "1", **environment}.items()
        ],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "code", "mountPath": "/code"}],
    }
    volumes: list[Manifest] = [{"name": "code", "configMap": {"name": CODE}}]
    if folder:
        container["volumeMounts"].append({"name": "checkpoints", "mountPath": "/checkpoints"})
        volumes.append({"name": "checkpoints", "hostPath": {"path": str(folder)}})
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes}
    return {"replicas": replicas, "template": {"spec": spec}}


class LiveJob:
    """The only PaddleJob of its namespace, which has its name."""

    def __init__(self, where: Target, name: str) -> None:
        self._where = where
        self.name = name

    async def kubectl(self, *arguments: str, text: str | None = None) -> str:
        stdin = None if text is None else text.encode()
        return await self._where.tools.run("kubectl", "--namespace", self.name, *arguments, stdin=stdin)

    async def start(self, program: Path, **spec: Any) -> None:
        """Create the namespace, the program for its pods, and the job."""
        manifest = {
            "apiVersion": "batch.paddlepaddle.org/v1",
            "kind": "PaddleJob",
            "metadata": {"name": self.name},
            "spec": spec,
        }
        await self.make_namespace()
        await self.kubectl("create", "configmap", CODE, f"--from-file={program}")
        await self.apply(manifest)

    async def make_namespace(self) -> None:
        """With what Kubernetes puts there for pods: a kubelet that does not find it gives a Warning."""
        await self.kubectl("create", "namespace", self.name)
        there = ("serviceaccount/default", "configmap/kube-root-ca.crt")
        await self.kubectl("wait", "--for=create", *there, "--timeout=90s")

    async def apply(self, *manifests: Manifest) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": manifests}
        await self.kubectl("apply", "--filename", "-", text=json.dumps(items))

    async def get(self, *what: str) -> Manifest:
        found: Manifest = json.loads(await self.kubectl("get", *what, "--output", "json"))
        return found

    async def status(self) -> Status:
        return dict((await self.get("pdj", self.name)).get("status", {}))

    async def pods(self) -> list[Manifest]:
        return list((await self.get("pods"))["items"])

    async def ends(self) -> Status:
        """Waits until the job has completed; returns its status then."""

        async def look() -> Status | None:
            status = await self.status()
            return status if status.get("phase") in ("Completed", "Failed") else None

        status = await eventually(look, within=WITHIN, every=1.0, what=f"{self.name} ends")
        assert status["phase"] == "Completed", status
        return status

    async def evict(self, pod: str) -> None:
        """Through the API, as a drain does."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}/eviction"
        await self.kubectl("create", "--raw", path, "--filename", "-", text=json.dumps(eviction))

    @asynccontextmanager
    async def is_healthy(self, file: Path) -> AsyncIterator[None]:
        """Checks that the job completes meanwhile, with neither a Warning nor a state of an error.

        Args:
            file: for every status that the API server reports.
        """

        def history() -> list[Status]:
            # The last line may be half written.
            lines = [line.partition(" ") for line in file.read_text().split("\n")[:-1]]
            return [json.loads(status) for name, _, status in lines if name == self.name and status]

        options = ("--all-namespaces", "--watch", "--output", 'jsonpath={.metadata.name} {.status}{"\\n"}')
        with file.open("wb") as output:
            watching = await self._where.tools.start(
                "kubectl", "get", "pdj", *options, stdout=output.fileno()
            )
        try:
            yield
            await eventually(lambda: history()[-1]["phase"] == "Completed", what="the whole way was seen")
        finally:
            await end(watching)
        check_healthy(history())
        assert await warnings_in(self._where, self.name) == []


def check_healthy(history: Sequence[Status]) -> None:
    """What a job may say on its way to its end, and in which order."""
    phases = [HEALTHY_PHASES[status["phase"]] for status in history]
    assert phases == sorted(phases)
    for status in history:
        conditions = {each["type"] for each in status["conditions"] if each["status"] == "True"}
        assert conditions <= HEALTHY_CONDITIONS, status
        assert not any(status.get(field) for field in ("restarts", "stuckOn", "epoch")), status
        assert not any(status[role]["failed"] for role in ("ps", "worker", "heter") if role in status), status
