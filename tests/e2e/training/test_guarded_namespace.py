"""Jobs in a namespace with Pod Security `restricted`, a quota on limits and a limit range.

The container that holds a pod back is subject to the same rules as the user's own.
"""

from __future__ import annotations

import pytest
from tests.e2e.training.live_job import IMAGE, WITHIN, LiveJob, Manifest

from job_controller.core import names
from paddlewheel.cli.target import Target
from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RESOURCES = {"cpu": "200m", "memory": "128Mi"}
"""The requests and limits of each container that trains."""
EXACT = {"cpu": "400m", "memory": "256Mi"}
"""The sum of two such containers."""
SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 65534,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER: Manifest = {
    "name": "main",
    "image": IMAGE,
    "securityContext": SECURITY,
    "resources": {"requests": RESOURCES, "limits": RESOURCES},
}
PROGRAM = """
import os, socket, time
host, _, port = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0].rpartition(":")
if os.environ["PADDLE_TRAINER_ID"] == "0":
    socket.create_server(("", int(port))).accept()
else:
    while True:
        try:
            socket.create_connection((host, int(port)))
            break
        except OSError:
            time.sleep(0.2)
"""
REFUSED: dict[str, Manifest] = {
    "violates PodSecurity": {"securityContext": {}},
    "must specify limits.cpu": {"resources": {}},
    "minimum memory usage": {"resources": {"requests": {"memory": "1Mi"}, "limits": RESOURCES}},
}
"""Parts of the API server's error, with the field of a container that causes it."""


async def guard(job: LiveJob) -> None:
    """Return when all three are enforced in the job's namespace."""
    await job.kubectl("label", "namespace", job.name, "pod-security.kubernetes.io/enforce=restricted")
    least = {"type": "Container", "min": {"cpu": "100m", "memory": "64Mi"}}
    # Enough for the pods of the job, and for nothing beside their containers.
    hard = {f"{part}.{name}": EXACT[name] for part in ("requests", "limits") for name in RESOURCES}
    made: Manifest = {"apiVersion": "v1", "metadata": {"name": "guard"}}
    await job.apply(
        made | {"kind": "LimitRange", "spec": {"limits": [least]}},
        made | {"kind": "ResourceQuota", "spec": {"hard": hard}},
    )

    async def counts() -> bool:
        return set((await job.get("resourcequota", "guard"))["status"].get("used", {})) == set(hard)

    await eventually(counts, within=WITHIN, what="the quota counts")


@pytest.mark.parametrize("network", ["PodIP", "Service"])
async def test_a_job_runs_where_namespaces_are_guarded(paddlewheel_cluster: Target, network: str) -> None:
    job = LiveJob(paddlewheel_cluster, f"guarded-{network}".lower())
    await job.make_namespace()
    await guard(job)
    for words, change in REFUSED.items():
        with pytest.raises(Permanent, match=words):
            await job.apply(pod_of(CONTAINER | change))

    container = CONTAINER | {"command": ["python", "-c", PROGRAM]}
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    spec = {"intranet": network, "cleanPodPolicy": "Never", "worker": {"replicas": 2, "template": template}}
    await job.apply(
        {
            "apiVersion": "batch.paddlepaddle.org/v1",
            "kind": "PaddleJob",
            "metadata": {"name": job.name},
            "spec": spec,
        }
    )
    await job.ends()
    pods = await job.pods()
    gates = [c["name"] for pod in pods for c in pod["spec"]["initContainers"]]
    assert gates == [names.GATE_CONTAINER] * 2
    assert {pod["status"]["qosClass"] for pod in pods} == {"Guaranteed"}


def pod_of(container: Manifest) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "refused"},
        "spec": {"containers": [container]},
    }
