"""Why a job does not run, on real kubelets: one job for each cause, all of them started together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from paddlewheel.cli.explain import Explanation, explain, with_lines
from paddlewheel.cli.target import Target
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import PADDLE_JOBS
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

NAMESPACE, IMAGE, WITHIN = "reasons", "paddlewheel/paddle-cpu:dev", 240
NOWHERE = "127.0.0.1:9/none/train:1"
"""No registry listens on this port of the node itself."""
FAILS = ["sh", "-c", "echo fetching; echo 'no bucket'; exit 4"]
EATS = ["python", "-c", "data = bytearray(300 << 20)\nwhile True: pass"]
LITTLE = {"command": EATS, "resources": {"limits": {"memory": "64Mi"}}}
MOUNTED = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
Object = dict[str, Any]


@dataclass(frozen=True)
class Cause:
    """One job that cannot run.

    Args:
        container, pod, job: fields of the container, of the pod's spec and of the job's spec.
        says, remedy: parts of the message and of what to do.
        lines: the last lines of the container's log.
        fact: JobStuck of a job that waits, JobFailed of one that has ended.
    """

    reason: str
    says: tuple[str, ...]
    remedy: str
    container: Object = field(default_factory=dict)
    pod: Object = field(default_factory=dict)
    job: Object = field(default_factory=dict)
    replicas: int = 1
    lines: tuple[str, ...] = ()
    fact: str = "JobStuck"

    def manifest(self, name: str) -> Object:
        container = {"name": "main", "image": IMAGE, "command": ["sleep", "600"], **self.container}
        pod = {"terminationGracePeriodSeconds": 0, "containers": [container], **self.pod}
        return {
            "apiVersion": "batch.paddlepaddle.org/v1",
            "kind": "PaddleJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {**self.job, "worker": {"replicas": self.replicas, "template": {"spec": pod}}},
        }


def volume(**source: Object) -> Object:
    return {"volumes": [{"name": "data", **source}]}


def init(**pod: Any) -> Object:
    return {"initContainers": [{"name": "fetch", "image": IMAGE, "command": FAILS}], **pod}


def by_rule(**rule: Any) -> Object:
    return {"backoffLimit": 3, "failurePolicy": {"rules": [rule]}}


CAUSES = {
    "registry": Cause(
        "ImagePullBackOff",
        (f'cannot pull image "{NOWHERE}"', "connection refused"),
        "correct the image's name",
        container={"image": NOWHERE},
    ),
    "absent": Cause(
        "ImagePullBackOff",
        ('cannot pull image "paddlewheel/none-such:1"', "pull policy of Never"),
        "correct the image's name",
        container={"image": "paddlewheel/none-such:1", "imagePullPolicy": "Never"},
    ),
    "misnamed": Cause(
        "InvalidImageName", ('"NONE//such"',), "correct the image's name", container={"image": "NONE//such"}
    ),
    "crashing": Cause(
        "CrashLoopBackOff",
        ("container main ended with exit code 4: no bucket",),
        "fix the program",
        container={"command": FAILS},
        pod={"restartPolicy": "OnFailure"},
        lines=("fetching", "no bucket"),
    ),
    "init-crashing": Cause(
        "CrashLoopBackOff",
        ("container fetch ended with exit code 4: no bucket",),
        "fix the program",
        pod=init(restartPolicy="OnFailure"),
        lines=("fetching", "no bucket"),
    ),
    "init-failing": Cause(
        "PodFailed",
        ("container fetch", "exit code 4", "no bucket"),
        "fix the cause",
        pod=init(),
        lines=("fetching", "no bucket"),
        fact="JobFailed",
    ),
    "missing-config": Cause(
        "CreateContainerConfigError",
        ('configmap "settings" not found',),
        "create the ConfigMap or Secret",
        container={"envFrom": [{"configMapRef": {"name": "settings"}}]},
    ),
    "missing-secret": Cause(
        "CreateContainerConfigError",
        ('secret "keys" not found',),
        "create the ConfigMap or Secret",
        container={"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}]},
    ),
    "missing-volume": Cause(
        "FailedMount",
        ('volume "data"', 'configmap "files" not found'),
        "create what is named",
        container=MOUNTED,
        pod=volume(configMap={"name": "files"}),
    ),
    "missing-folder": Cause(
        "FailedMount",
        ('volume "data"', "/none-such is not a directory"),
        "create what is named",
        container=MOUNTED,
        pod=volume(hostPath={"path": "/none-such", "type": "Directory"}),
    ),
    "missing-claim": Cause(
        "Unschedulable",
        ('persistentvolumeclaim "none-such" not found',),
        "create the PersistentVolumeClaim",
        container=MOUNTED,
        pod=volume(persistentVolumeClaim={"claimName": "none-such"}),
    ),
    "taken-port": Cause(
        "Unschedulable",
        ("0/2 nodes are available", "2 node(s) didn't have free ports"),
        "remove hostPort",
        container={"ports": [{"containerPort": 8000, "hostPort": 18000}]},
        replicas=3,
    ),
    "out-of-memory": Cause(
        "BackoffLimitExceeded",
        ("OOMKilled, exit code 137", "restarted once", "spec.backoffLimit is 1"),
        "raise resources.limits.memory",
        container=LITTLE,
        job={"backoffLimit": 1},
        fact="JobFailed",
    ),
    "fails-by-rule": Cause(
        "FailureRule",
        ("OOMKilled, exit code 137", "a rule of spec.failurePolicy ends the job"),
        "raise resources.limits.memory",
        container=LITTLE,
        job=by_rule(action="Fail", reasons=["OOMKilled"]),
        fact="JobFailed",
    ),
    "restarts-by-rule": Cause(
        "BackoffLimitExceeded",
        ("OOMKilled, exit code 137", "restarted once", "limit of its rule in spec.failurePolicy is 1"),
        "raise resources.limits.memory",
        container=LITTLE,
        job=by_rule(action="Restart", reasons=["OOMKilled"], limit=1),
        fact="JobFailed",
    ),
}


class Jobs:
    """The jobs on the cluster."""

    def __init__(self, where: Target) -> None:
        self._where = where

    async def kubectl(self, *arguments: str, manifest: Object | None = None) -> str:
        stdin = None if manifest is None else json.dumps(manifest).encode()
        return await self._where.tools.run("kubectl", "--namespace", NAMESPACE, *arguments, stdin=stdin)

    async def start(self) -> None:
        await self.kubectl("create", "namespace", NAMESPACE)
        items = [cause.manifest(name) for name, cause in CAUSES.items()]
        await self.kubectl("apply", "-f", "-", manifest={"apiVersion": "v1", "kind": "List", "items": items})

    async def remove(self) -> None:
        await self.kubectl("delete", "namespace", NAMESPACE)

    async def explained(self, job: str, reason: str) -> Explanation:
        """Once the job shows the reason."""
        async with self._where.connected() as api:

            async def says_so() -> Explanation | None:
                found = await api.get(PADDLE_JOBS, Key(NAMESPACE, job))
                said = explain(found)
                assert said.reason == reason, said
                return await with_lines(api, said, found)

            found: Explanation = await eventually(says_so, within=WITHIN, every=0.5, what=f"{job}: {reason}")
            return found

    async def get(self, job: str) -> Object:
        found: Object = json.loads(await self.kubectl("get", "pdj", job, "-o", "json"))
        return found

    async def status(self, job: str) -> Object:
        status: Object = (await self.get(job))["status"]
        return status

    async def reaches(self, job: str, phase: str) -> None:
        async def is_there() -> bool:
            status = await self.status(job)
            assert status["phase"] == phase, status.get("message")
            return True

        await eventually(is_there, within=WITHIN, every=0.5, what=f"{job} is {phase}")

    async def warnings(self, job: str, reason: str) -> list[str]:
        """Messages of the Warning events about a job."""
        about = f"involvedObject.kind=PaddleJob,involvedObject.name={job},reason={reason},type=Warning"
        listed = json.loads(await self.kubectl("get", "events", "--field-selector", about, "-o", "json"))
        return [str(event["message"]) for event in listed["items"] for _ in range(event.get("count") or 1)]

    async def facts(self, job: str, fact: str) -> list[Object]:
        """Data of the facts of that kind about a job."""
        name = self._where.embedded or ""
        command = (
            "paddlewheel",
            "events",
            "-A",
            "--cluster",
            name,
            "--since",
            "all",
            "--no-follow",
            "-o",
            "json",
        )
        told = [json.loads(line) for line in (await self._where.tools.run(*command)).splitlines()]
        uid = (await self.get(job))["metadata"]["uid"]
        alike = [event["data"] for event in told if event["type"].rpartition(".")[2] == fact]
        return [data for data in alike if data["job"]["uid"] == uid]


@pytest.fixture(scope="module")
def jobs(paddlewheel_cluster: Target) -> Iterator[Jobs]:
    """One for each cause."""
    started = Jobs(paddlewheel_cluster)
    asyncio.run(started.start())
    yield started
    asyncio.run(started.remove())


@pytest.mark.parametrize("name", CAUSES)
async def test_a_job_that_cannot_run_says_why(jobs: Jobs, name: str) -> None:
    cause = CAUSES[name]
    said = await jobs.explained(name, cause.reason)
    for part in cause.says:
        assert part in said.message
    assert cause.remedy in said.remedy
    assert said.lines == cause.lines

    status = await jobs.status(name)
    conditions = {c["reason"]: c["message"] for c in status["conditions"]}
    assert conditions[cause.reason] == said.message
    assert status.get("stuckOn", []) == ([cause.reason] if cause.fact == "JobStuck" else [])

    async def is_told() -> bool:
        told = [(fact["reason"], fact["message"]) for fact in await jobs.facts(name, cause.fact)]
        assert told == [(cause.reason, said.message)], "once"
        assert await jobs.warnings(name, cause.reason) == [said.message], "once"
        return True

    await eventually(is_told, within=WITHIN, every=1.0, what=f"{cause.fact} about {name}")


async def test_jobs_go_on_when_what_is_missing_comes(jobs: Jobs) -> None:
    missing = {"missing-config": "configmap/settings", "missing-secret": "secret/keys", "missing-volume": ""}
    for name in missing:
        await jobs.explained(name, CAUSES[name].reason)
    await jobs.kubectl("create", "configmap", "settings", "--from-literal=rate=1")
    await jobs.kubectl("create", "secret", "generic", "keys", "--from-literal=key=1")
    await jobs.kubectl("create", "configmap", "files", "--from-literal=file=1")
    for name in missing:
        await jobs.reaches(name, "Running")


async def test_a_job_goes_on_with_an_image_that_there_is(jobs: Jobs) -> None:
    await jobs.explained("registry", "ImagePullBackOff")
    change = [{"op": "replace", "path": "/spec/worker/template/spec/containers/0/image", "value": IMAGE}]
    await jobs.kubectl("patch", "pdj", "registry", "--type", "json", "--patch", json.dumps(change))
    await jobs.reaches("registry", "Running")
