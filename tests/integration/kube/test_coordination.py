"""Leases, Events and a pod's own credentials on a real API server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from pathlib import Path

import pytest
import yaml

from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import SystemClock
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube import connect
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.membership import (
    LABEL,
    LEASE_TIMEOUT_SECONDS,
    PRUNE_GRACE_SECONDS,
    RENEW_INTERVAL_SECONDS,
    LeaseMembership,
)
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import CONFIG_MAPS, EVENTS, LEASES, PODS, Resource
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.identities import chart_identities
from paddlewheel.testkit.shared import TestRun
from paddlewheel.testkit.wait import eventually

TOKENS = Resource("", "v1", "serviceaccounts/default/token", "TokenRequest")


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_replicas_see_each_other_come_and_go(cluster: ApiCluster, namespace: str) -> None:
    members = {
        name: LeaseMembership(cluster, cluster, namespace, "jobs", name, SystemClock()) for name in ("a", "b")
    }
    tasks = {name: asyncio.create_task(member.run()) for name, member in members.items()}
    await eventually(lambda: all(member.members() == {"a", "b"} for member in members.values()))
    await end(tasks["b"])
    await eventually(lambda: members["a"].members() == {"a"})
    assert [key_of(lease).name for lease in await cluster.list(LEASES, namespace)] == ["jobs-a"]
    await end(tasks["a"])


class Abandoned(ApiCluster):
    """What a killed process leaves: its last renewal, and no release of its Lease."""

    def __init__(self, cluster: ApiCluster) -> None:
        self.__dict__ |= cluster.__dict__

    async def delete(self, *_: object, **__: object) -> None:
        raise Retry("Killed")


async def test_a_replica_that_died_is_gone_after_its_lease_expired(
    cluster: ApiCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock stands still while a renewal is under way: none may be given up for a slow server's sake.
    monkeypatch.setattr("paddlewheel.kube.membership.RENEW_TIMEOUT_SECONDS", 300.0)
    clock = ManualClock()
    api = {"a": cluster, "b": cluster, "dead": Abandoned(cluster)}
    members = {n: LeaseMembership(c, cluster, namespace, "jobs", n, clock) for n, c in api.items()}
    tasks = {name: asyncio.create_task(member.run()) for name, member in members.items()}
    await eventually(lambda: all(member.members() == {*api} for member in members.values()))
    await end(tasks["dead"])

    async def have_renewed() -> bool:
        now = clock.now().strftime("%H:%M:%S")
        leases = {key_of(o).name: o["spec"]["renewTime"] for o in await cluster.list(LEASES, namespace)}
        return all(now in leases[name] for name in ("jobs-a", "jobs-b"))

    for _ in range(3):
        await clock.advance(RENEW_INTERVAL_SECONDS)
        await eventually(have_renewed)
        assert all(members[name].members() == {*api} for name in ("a", "b"))
    await clock.advance(LEASE_TIMEOUT_SECONDS - 3 * RENEW_INTERVAL_SECONDS)
    await eventually(lambda: all(members[name].members() == {"a", "b"} for name in ("a", "b")))
    for name in ("a", "b"):
        await end(tasks[name])


@pytest.mark.parametrize("service", ["job-controller", "dataset-controller", "serving-controller"])
async def test_the_lease_of_a_replica_that_died_long_ago_is_deleted(
    cluster: ApiCluster,
    namespace: str,
    api_server: str,
    test_run: TestRun,
    service: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the rights that the chart gives the service."""
    # The clock stands still: a renewal that was given up would not be tried again.
    monkeypatch.setattr("paddlewheel.kube.membership.RENEW_TIMEOUT_SECONDS", 300.0)
    identities = await chart_identities(test_run, api_server)
    clock = ManualClock()
    renewed = clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    metadata = {"namespace": namespace, "name": f"{service}-dead", "labels": {LABEL: service}}
    spec = {
        "holderIdentity": "dead",
        "leaseDurationSeconds": int(LEASE_TIMEOUT_SECONDS),
        "renewTime": renewed,
    }
    await cluster.create(LEASES, {"metadata": metadata, "spec": spec})
    async with await connect(identities.get(service, api_server)) as api:
        living = LeaseMembership(api, api, namespace, service, "living", clock)
        task = asyncio.create_task(living.run())
        await eventually(lambda: living.members() == {"dead", "living"})

        async def is_deleted() -> bool:
            await clock.advance(PRUNE_GRACE_SECONDS / 5)
            return [key_of(o).name for o in await cluster.list(LEASES, namespace)] == [f"{service}-living"]

        await eventually(is_deleted)
        await end(task)


async def test_events_are_accepted_and_counted(cluster: ApiCluster, namespace: str) -> None:
    config = await cluster.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": namespace}})
    recorder = EventRecorder(cluster, "job-controller", "pod-1", SystemClock())
    task = asyncio.create_task(recorder.run())
    for _ in range(3):
        recorder.warning(CONFIG_MAPS, config, "Odd", "data: is empty; put something in")
    await asyncio.wait_for(recorder.flush(), 90)
    await end(task)
    [event] = await cluster.list(EVENTS, namespace, field_selector="involvedObject.name=a,type=Warning")
    assert (event["reason"], event["count"], event["involvedObject"]["kind"]) == ("Odd", 3, "ConfigMap")


async def test_a_pod_connects_with_its_service_account(
    api_server: str, cluster: ApiCluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "metadata": {"namespace": namespace}, "spec": {}}
    answer = await cluster.create(TOKENS, request)
    server = yaml.safe_load(Path(api_server).read_text())["clusters"][0]["cluster"]
    (tmp_path / "token").write_text(answer["status"]["token"])
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(server["certificate-authority-data"]))
    host, port = server["server"].removeprefix("https://").split(":")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    module = "kubernetes.aio.config.incluster_config"
    monkeypatch.setattr(f"{module}.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(f"{module}.SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    (tmp_path / "netrc").write_text("default login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    async with await connect() as mine:
        with pytest.raises(Permanent, match=f"system:serviceaccount:{namespace}:default") as caught:
            await mine.get(PODS, Key(namespace, "any"))
    assert caught.value.reason == "Forbidden"
