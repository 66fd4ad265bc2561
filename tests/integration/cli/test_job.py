"""`paddlewheel job` on a real API server, beside a job-controller that the test plays."""

from __future__ import annotations

import asyncio
import re
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.cli.command import Ended, ended, run, start

from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import PADDLE_JOBS, Object
from paddlewheel.testkit.wait import eventually

IMAGE = ("--image", "team/sine:1")


async def job(api_server: str, *arguments: str) -> Ended:
    return await run("job", *arguments, env={"KUBECONFIG": api_server})


async def show(cluster: ApiCluster, key: Key, **status: Any) -> Object:
    """What job-controller would write."""
    return await cluster.patch(PADDLE_JOBS, key, {"status": status}, subresource="status")


async def appears(cluster: ApiCluster, key: Key) -> Object:
    async def there() -> Object:
        try:
            return await cluster.get(PADDLE_JOBS, key)
        except NotFound:
            return {}

    return dict(await eventually(there, what=str(key)))


@pytest.fixture
async def sine(namespace: str, api_server: str) -> Key:
    created = await job(
        api_server, "run", *IMAGE, "--name", "sine", "-n", namespace, "--no-follow", "--workers", "2"
    )
    assert created.code == 0, created.err
    return Key(namespace, "sine")


async def test_a_life_of_a_job(cluster: ApiCluster, sine: Key, api_server: str) -> None:
    stored = await cluster.get(PADDLE_JOBS, sine)
    assert stored["spec"]["worker"]["replicas"] == 2
    await show(
        cluster, sine, phase="Running", mode="Collective", ready="2/2", restarts={"NodeLost": 1}, epoch=1
    )
    listed = await job(api_server, "list", "-A")
    row = next(line for line in listed.out.splitlines() if str(sine) in line)
    assert row.split()[:6] == [str(sine), "Running", "Collective", "2/2", "1", "1"]
    assert (await job(api_server, "show", str(sine), "-o", "json")).json["status"]["restarts"] == {
        "NodeLost": 1
    }

    assert (
        "4 workers requested, 2 before" in (await job(api_server, "scale", str(sine), "--workers", "4")).out
    )
    assert (await job(api_server, "suspend", str(sine), "-o", "json")).json["changed"] is True
    spec = (await cluster.get(PADDLE_JOBS, sine))["spec"]
    assert (spec["suspend"], spec["worker"]["replicas"]) == (True, 4)
    assert (await job(api_server, "resume", str(sine))).code == 0
    assert (await job(api_server, "restart", str(sine))).code == 0
    changed = await cluster.get(PADDLE_JOBS, sine)
    assert changed["spec"]["suspend"] is False
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
        changed["metadata"]["annotations"]["paddlepaddle.org/restart"],
    )

    gone = await job(api_server, "delete", str(sine), "--yes", "--wait", "30")
    assert gone.out == f"{sine} is gone\n"


async def test_a_refusal_of_the_api_server_names_the_field(
    cluster: ApiCluster, namespace: str, api_server: str
) -> None:
    name = "j" * 53
    assert (await job(api_server, "run", *IMAGE, "--name", name, "-n", namespace, "--no-follow")).code == 0
    refused = await job(api_server, "scale", f"{namespace}/{name}", "--workers", "101")
    assert (refused.code, "metadata.name is too long" in refused.err) == (1, True)
    again = await job(api_server, "run", *IMAGE, "--name", name, "-n", namespace, "--no-follow")
    assert (again.code, "JobExists" in again.err) == (1, True)
    nowhere = await job(api_server, "run", *IMAGE, "-n", "no-such-namespace", "--no-follow")
    assert (nowhere.code, "`kubectl create namespace no-such-namespace`" in nowhere.err) == (1, True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (
            {"phase": "Completed", "duration": "5s", "results": {"loss": 0.25}},
            0,
            "Completed after 5s; loss 0.25",
        ),
        (
            {"phase": "Failed", "reason": "PodFailed", "message": "exit code 3"},
            1,
            "Failed: PodFailed: exit code 3",
        ),
    ],
)
async def test_a_job_is_followed_and_its_end_is_the_exit_code(
    cluster: ApiCluster, namespace: str, api_server: str, status: dict[str, Any], code: int, said: str
) -> None:
    key = Key(namespace, "followed")
    async with following(api_server, key) as process:
        await appears(cluster, key)
        await show(cluster, key, phase="Pending", ready="0/1", reason="Unschedulable")
        await says(process, f"{key}: Pending, 0/1 ready, Unschedulable")
        await show(cluster, key, phase="Running", ready="1/1")
        await show(cluster, key, **status)
        done = await ended(process)
    assert done.code == code, done.err
    assert said in (done.err if code else done.out)


@pytest.mark.long
async def test_for_scripts_the_end_of_a_job_is_one_value(
    cluster: ApiCluster, namespace: str, api_server: str
) -> None:
    key = Key(namespace, "scripted")
    async with following(api_server, key, "-o", "json") as process:
        await appears(cluster, key)
        await show(cluster, key, phase="Failed", reason="PodFailed")
        done = await ended(process)
    assert (done.code, done.err, done.json["status"]["reason"]) == (1, "", "PodFailed")


@asynccontextmanager
async def following(api_server: str, key: Key, *more: str) -> AsyncIterator[Process]:
    """A `job run` that is killed when it has not ended by then."""
    words = ("job", "run", *IMAGE, "--name", key.name, "-n", key.namespace, *more)
    process = await start(*words, env={"KUBECONFIG": api_server})
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def says(process: Process, text: str) -> None:
    """Read standard error until it has the line."""
    assert process.stderr
    async with asyncio.timeout(90):
        while text not in (line := (await process.stderr.readline()).decode()):
            assert line, f"ended without: {text}"


@pytest.mark.long
async def test_ctrl_c_ends_the_command_and_not_the_job(
    cluster: ApiCluster, namespace: str, api_server: str
) -> None:
    key = Key(namespace, "left")
    async with following(api_server, key) as process:
        await says(process, "created; Ctrl-C ends this command")
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    assert (done.code, "a job that was created continues" in done.err) == (130, True)
    assert "deletionTimestamp" not in (await cluster.get(PADDLE_JOBS, key))["metadata"]


async def test_a_context_is_another_cluster_than_the_current_one(
    sine: Key, api_server: str, tmp_path: Path
) -> None:
    config = yaml.safe_load(Path(api_server).read_text())
    config["clusters"].append({"name": "off", "cluster": {"server": "https://127.0.0.1:1"}})
    config["contexts"].append({"name": "off", "context": {"cluster": "off", "user": "nobody"}})
    config["users"].append({"name": "nobody", "user": {}})
    there, config["current-context"] = config["current-context"], "off"
    both = tmp_path / "both"
    both.write_text(yaml.safe_dump(config))
    chosen = await job(str(both), "show", str(sine), "--context", there, "-o", "json")
    assert (chosen.code, chosen.json["metadata"]["name"]) == (0, "sine"), chosen.err
    current = await job(str(both), "show", str(sine))
    assert (current.code, "ClusterUnreachable" in current.err) == (1, True)
    unknown = await job(str(both), "show", str(sine), "--context", "stage")
    assert (unknown.code, f"choose --context from: {', '.join(sorted((there, 'off')))}" in unknown.err) == (
        1,
        True,
    )


async def test_a_dry_run_prints_what_the_api_server_accepts(
    cluster: ApiCluster, namespace: str, api_server: str
) -> None:
    words = (
        "--servers=1", "--workers=2", "--gpus=1", "--cpu=2", "--memory=1Gi", "--env=A=1", "--data=set:/data",
        "--checkpoint=/data/c", "--backoff-limit=3", "--ttl=1h", "--deadline=2h", "--network=Service",
    )  # fmt: skip
    run_it = ("run", "--dry-run", *IMAGE, "-n", namespace, *words, "--", "python", "train.py")
    printed = await job(api_server, *run_it)
    manifest = yaml.safe_load(printed.out)
    stored = await cluster.create(PADDLE_JOBS, manifest)
    assert stored["spec"] == manifest["spec"]
