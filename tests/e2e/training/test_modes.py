"""Real Paddle trains in every mode and network; what it shows on the way is healthy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.training.live_job import WITHIN, LiveJob, Manifest, Status, make_role

from paddlewheel.cli.target import Target
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.timeout(600)
LONG = pytest.mark.long

LINEAR, HETER = (Path(__file__).with_name(name) for name in ("linear.py", "heter.py"))
EXAMPLE = Path(__file__).parents[3] / "examples" / "ctr"
STEPS = 30
ENVIRONMENT = {"Host": {"GLOO_SOCKET_IFNAME": "eth0"}}
"""By network. gloo looks up the node's name, which Debian's `/etc/hosts` maps to a loopback address."""


def spread(job: str) -> Manifest:
    """Over the nodes, as evenly as their number allows."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"paddlepaddle.org/paddlejob": job}},
    }


@pytest.mark.parametrize(
    ("mode", "network", "workers"),
    [
        pytest.param("Single", "PodIP", 1, marks=LONG),
        ("Collective", "PodIP", 2),
        pytest.param("Collective", "Service", 2, marks=LONG),
        # On two nodes, so that two of them share the ports of one.
        pytest.param("Collective", "Host", 3, marks=LONG),
    ],
)
async def test_workers_train_together(
    paddlewheel_cluster: Target, tmp_path: Path, mode: str, network: str, workers: int
) -> None:
    job = LiveJob(paddlewheel_cluster, f"{mode}-{network}".lower())
    environment = {"STEPS": str(STEPS), **ENVIRONMENT.get(network, {})}
    role = make_role(workers, LINEAR.name, tmp_path, **environment)
    role["template"]["spec"]["topologySpreadConstraints"] = [spread(job.name)]
    async with job.is_healthy(tmp_path / "statuses"):
        spec = {"intranet": network, "cleanPodPolicy": "Never", "checkpointPath": "/checkpoints"}
        await job.start(LINEAR, worker=role, **spec)
        status = await job.ends()

    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [(line["step"], line["size"]) for line in lines] == [(i + 1, workers) for i in range(STEPS)]
    assert lines[-1]["loss"] < lines[0]["loss"] / 2
    assert status["mode"] == mode
    await check_addresses(job, network)


async def check_addresses(job: LiveJob, network: str) -> None:
    """Of the network that was asked for, on all nodes, and no two alike."""
    pods = await job.pods()
    assert len({pod["spec"]["nodeName"] for pod in pods}) == min(len(pods), 2)
    hosts = [pod["metadata"]["name"] if network == "Service" else pod["status"]["podIP"] for pod in pods]
    listed = (await job.get("configmap", job.name))["data"]["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert [endpoint.partition(":")[0] for endpoint in listed] == hosts
    assert len(set(listed)) == len(pods)
    on_hosts = {pod["status"]["podIP"] == pod["status"]["hostIP"] for pod in pods}
    assert on_hosts == {network == "Host"}


async def example(name: str, where: Target, *, steps: int = 100, **changes: Any) -> list[Manifest]:
    """The code and the job that a user applies, under another name and with these fields."""
    text = await where.tools.run("kubectl", "kustomize", str(EXAMPLE))
    [code, job] = yaml.safe_load_all(text)
    job["metadata"]["name"] = name
    job["spec"] |= changes
    [container] = job["spec"]["worker"]["template"]["spec"]["containers"]
    container["env"].append({"name": "STEPS", "value": str(steps)})
    return [code, job]


def check_trained(status: Status) -> None:
    assert status["mode"] == "PS"
    assert status["results"]["loss"] < 0.95 * status["results"]["first_loss"]


async def is_cleaned(job: LiveJob) -> bool:
    """Paddle's servers do not end by themselves: they are deleted with the other pods."""
    return await job.pods() == []


@LONG
async def test_parameter_servers_train_the_example(paddlewheel_cluster: Target, tmp_path: Path) -> None:
    job = LiveJob(paddlewheel_cluster, "servers")
    async with job.is_healthy(tmp_path / "statuses"):
        await job.make_namespace()
        await job.apply(*await example(job.name, paddlewheel_cluster))
        check_trained(await job.ends())
    await eventually(lambda: is_cleaned(job), within=WITHIN, what="the pods are deleted")


@LONG
async def test_parameter_servers_on_one_node_listen_on_different_ports(
    paddlewheel_cluster: Target, tmp_path: Path
) -> None:
    job = LiveJob(paddlewheel_cluster, "one-node")
    node = (await job.get("nodes"))["items"][0]["metadata"]["name"]
    # Without gloo, which would meet at the address of the node's name: see ENVIRONMENT.
    code, manifest = await example(job.name, paddlewheel_cluster, intranet="Host", withGloo=0)
    manifest["spec"]["ps"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    async with job.is_healthy(tmp_path / "statuses"):
        await job.make_namespace()
        await job.apply(code, manifest)
        check_trained(await job.ends())

    config = (await job.get("configmap", job.name))["data"]
    first, second = (each.split(":") for each in config["PADDLE_PSERVERS_IP_PORT_LIST"].split(","))
    assert first[0] == second[0]
    assert first[1] != second[1]


@LONG
async def test_an_evicted_server_restarts_all_servers_and_trainers(paddlewheel_cluster: Target) -> None:
    """The CTR example of Volcano's users: all or nothing, a pod that is evicted restarts the job."""
    job = LiveJob(paddlewheel_cluster, "evicted")

    async def trains() -> bool:
        return "progress" in await job.kubectl("logs", f"{job.name}-worker-0")

    await job.make_namespace()
    # Enough of them for the eviction to come in between.
    await job.apply(*await example(job.name, paddlewheel_cluster, steps=300, intranet="Service"))
    await job.kubectl("wait", f"pdj/{job.name}", "--for=condition=Running", f"--timeout={WITHIN}s")
    former = {pod["metadata"]["uid"] for pod in await job.pods()}
    assert (await job.status())["gang"]["minAvailable"] == len(former)
    await eventually(trains, within=WITHIN, every=0.5, what="the trainers train")
    await job.evict(f"{job.name}-ps-1")

    status = await job.ends()
    check_trained(status)
    assert (status["epoch"], status["restarts"]) == (1, {"Evicted": 1})
    trained = {ref["uid"] for role in ("ps", "worker") for ref in status[role]["refs"]}
    assert len(trained) == len(former)
    assert not trained & former


@LONG
async def test_roles_of_a_heter_job_know_each_other(paddlewheel_cluster: Target, tmp_path: Path) -> None:
    """Paddle's role makers accept what they are told, and every pod reaches those that it needs.

    Further Paddle 3.0.0 does not go: `minimize` of a trainer fails with
    "AttributeError: 'tuple' object has no attribute 'merged_var'".
    """
    job = LiveJob(paddlewheel_cluster, "heter")
    roles = {"ps": 1, "worker": 2, "heter": 2}
    async with job.is_healthy(tmp_path / "statuses"):
        spec = {role: make_role(count, HETER.name) for role, count in roles.items()}
        await job.start(HETER, cleanPodPolicy="Never", **spec)
        assert (await job.ends())["mode"] == "PS"

    config = (await job.get("configmap", job.name))["data"]
    for role, count in roles.items():
        for index in range(count):
            said = await job.kubectl("logs", f"{job.name}-{role}-{index}")
            [line] = re.findall(r"^role (\{.*\})$", said, re.MULTILINE)
            assert json.loads(line) == expected(role, index, config)


def expected(role: str, index: int, config: dict[str, str]) -> Manifest:
    """What a role maker says about its place in the pipeline."""
    trainers, heter = (
        config[name].split(",") for name in ("PADDLE_TRAINER_ENDPOINTS", "PADDLE_HETER_ENDPOINTS")
    )
    is_heter, is_server = role == "heter", role == "ps"
    return {
        "index": index + len(trainers) if is_heter else index,
        "server": is_server,
        "heter": is_heter,
        "servers": config["PADDLE_PSERVERS_IP_PORT_LIST"].split(","),
        "trainers": trainers,
        "next": heter if role == "worker" else [],
        "previous": trainers if is_heter else [],
        "stages": [] if is_server else [len(trainers), len(heter)],
    }
