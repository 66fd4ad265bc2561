"""Which Secrets are read for whom: its own namespace's, and what others share; never this service's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.dataset_controller.conftest import FAR_RUNTIME, RUNTIME, SET, DataHarness, OpenData

from dataset_controller.domain.consent import SHARED_WITH, check_consent, check_namespace
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube import ports
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import Object, Resource
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set, make_secret

VAULT = Key("vault", "engine")
RECHECK = 6
SHARE = "kubectl -n vault annotate secret engine batch.paddlepaddle.org/shared-with=default"


def shared(with_: str) -> Object:
    secret = make_secret("engine", "vault")
    secret["metadata"]["annotations"] = {SHARED_WITH: with_}
    return secret


@pytest.mark.parametrize(
    ("namespace", "secret", "refused"),
    [
        ("vault", None, False),
        ("vault", make_secret("engine", "vault"), False),
        ("team-a", None, True),
        ("team-a", make_secret("engine", "vault"), True),
        ("team-a", shared(""), True),
        ("team-a", shared("team"), True),
        ("team-a", shared("team-ab"), True),
        ("team-a", shared("*"), True),
        ("team-a", shared("team-b, team-a"), False),
    ],
)
def test_a_secret_of_another_namespace_names_those_that_may_use_it(
    namespace: str, secret: Object | None, refused: bool
) -> None:
    found = check_consent(VAULT, namespace, secret)
    assert (found is not None) == refused
    assert found is None or found.reason == "SecretNotShared"


@pytest.mark.parametrize(
    ("named", "namespace", "refused"),
    [
        (Key("paddle-system", "nats-ca"), "team-a", True),
        (Key("paddle-system", "nats-ca"), "paddle-system", False),
        (Key("vault", "engine"), "team-a", False),
    ],
)
def test_secrets_of_this_services_namespace_are_not_even_read(
    named: Key, namespace: str, refused: bool
) -> None:
    assert (check_namespace(named, namespace, "paddle-system") is not None) == refused


async def test_a_set_uses_a_secret_that_is_shared_with_it(data: DataHarness) -> None:
    await data.create(make_secret("engine", "vault"), ports.SECRETS)
    await data.create(make_sample_set(secretRef={"name": "engine", "namespace": "vault"}))
    await data.drive()
    refused = await data.expect_condition("Accepted", "SecretNotShared")
    assert SHARE in refused["message"]
    assert await data.objects(ports.PERSISTENT_VOLUMES) == []
    await data.patch(VAULT, {"metadata": {"annotations": {SHARED_WITH: "default"}}}, ports.SECRETS)
    await data.wait(RECHECK)
    await data.expect_phase("Ready")


async def test_a_missing_secret_elsewhere_looks_as_one_that_is_not_shared(data: DataHarness) -> None:
    await data.create(make_sample_set(secretRef={"name": "engine", "namespace": "vault"}))
    await data.drive()
    missing = await data.expect_condition("Accepted", "SecretNotShared")
    await data.create(make_secret("engine", "vault"), ports.SECRETS)
    await data.wait(RECHECK)
    assert await data.condition(Key("default", "digits"), "Accepted") == missing


async def test_a_job_uses_a_secret_that_is_shared_with_it(data: DataHarness) -> None:
    await data.ready_set()
    await data.create(make_secret("engine", "vault"), ports.SECRETS)
    job = make_sample_job(type="sync", secretRef={"name": "engine", "namespace": "vault"})
    await data.create_job(job)
    key = Key("default", "job")
    refused = await data.expect_condition("Accepted", "SecretNotShared", key, ports.SAMPLE_JOBS)
    assert SHARE in refused["message"]
    await data.patch(VAULT, {"metadata": {"annotations": {SHARED_WITH: "default"}}}, ports.SECRETS)
    await data.wait(RECHECK)
    await data.expect_job("Succeeded")


async def test_a_reference_to_this_services_namespace_reads_nothing(open_data: OpenData) -> None:
    async with open_data(pod_namespace="paddle-system") as data:
        secret = make_secret("nats-ca", "paddle-system")
        secret["metadata"]["annotations"] = {SHARED_WITH: "default"}
        await data.create(secret, ports.SECRETS)
        with data.recorded_calls() as calls:
            await data.create(make_sample_set(secretRef={"name": "nats-ca", "namespace": "paddle-system"}))
            await data.drive()
        refused = await data.expect_condition("Accepted", "SecretNotShared")
        assert "copy it to default" in refused["message"]
        assert ("get", "secrets", "nats-ca") not in calls


async def test_a_namespace_that_is_not_served_is_named_with_the_command_that_serves_it(
    open_data: OpenData, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_data(pod_namespace="paddle-system") as data:
        failing = Failing(data, monkeypatch, Permanent("Forbidden", "secrets is forbidden"))
        await data.start_set()
        refused = await data.expect_condition("Accepted", "NamespaceNotServed")
        assert refused["message"].endswith(
            "kubectl -n default create rolebinding paddlewheel-dataset-namespace"
            " --clusterrole=paddlewheel-dataset-namespace --serviceaccount=paddle-system:dataset-controller"
        )
        failing.error = None
        await data.wait(RECHECK)
        await data.expect_phase("Ready")


async def test_a_secret_that_is_shared_no_more_is_taken_back(data: DataHarness) -> None:
    await data.create(shared("default"), ports.SECRETS)
    await data.create(make_sample_set(secretRef={"name": "engine", "namespace": "vault"}))
    await data.drive()
    await data.expect_phase("Ready")
    uid = str((await data.get(SET))["metadata"]["uid"])
    assert "engine.metaurl" in await keys_of_runtime(data)
    await data.patch(VAULT, {"metadata": {"annotations": {SHARED_WITH: "team-b"}}}, ports.SECRETS)
    await report_for(data, uid, 70)
    taken = await data.expect_condition("Accepted", "SecretNotShared")
    assert SHARE in taken["message"]
    assert not [name for name in await keys_of_runtime(data) if name.startswith(("engine.", "source."))]
    await data.expect_phase("Ready")
    await data.patch(VAULT, {"metadata": {"annotations": {SHARED_WITH: "default"}}}, ports.SECRETS)
    await report_for(data, uid, 40)
    await data.expect_condition("Accepted", "Accepted")
    assert "engine.metaurl" in await keys_of_runtime(data)


async def test_the_csi_drivers_copy_is_taken_back_too(data: DataHarness) -> None:
    await data.create({"metadata": {"name": "csi.juicefs.com"}}, ports.CSI_DRIVERS)
    await data.create(shared("default"), ports.SECRETS)
    await data.create(make_sample_set(secretRef={"name": "engine", "namespace": "vault"}))
    await data.drive()
    driver = Key("default", "digits-runtime-volume")
    assert "metaurl" in (await data.get(driver, ports.SECRETS))["data"]
    await data.patch(VAULT, {"metadata": {"annotations": {SHARED_WITH: "team-b"}}}, ports.SECRETS)
    await report_for(data, str((await data.get(SET))["metadata"]["uid"]), 70)
    assert (await data.get(driver, ports.SECRETS))["data"] == {}


async def test_a_secret_that_is_gone_elsewhere_stops_nothing_that_runs(data: DataHarness) -> None:
    await data.create(shared("default"), ports.SECRETS)
    await data.create(make_sample_set(secretRef={"name": "engine", "namespace": "vault"}))
    await data.drive()
    await data.delete(VAULT, ports.SECRETS)
    await report_for(data, str((await data.get(SET))["metadata"]["uid"]), 70)
    await data.expect_condition("Accepted", "SecretNotShared")
    assert "engine.metaurl" in await keys_of_runtime(data)


async def test_a_set_that_is_refused_for_long_is_looked_at_now_and_then(data: DataHarness) -> None:
    await data.create(make_sample_set(secretRef={"name": "engine", "namespace": "vault"}))
    await data.wait(120)
    with data.recorded_calls() as calls:
        await data.wait(120)
    # Every 30 s, and its own Secret.
    assert sum(call[:2] == ("get", "secrets") for call in calls) <= 6


async def keys_of_runtime(data: DataHarness) -> list[str]:
    return list((await data.get(RUNTIME, ports.SECRETS)).get("data") or {})


async def report_for(data: DataHarness, uid: str, seconds: int) -> None:
    """Agents report every 10 s, which wakes their set."""
    for _ in range(seconds // 10):
        await data.runtime.report(uid, 1)
        await data.wait(10)


async def test_of_another_namespace_only_the_one_secret_is_asked_for(
    open_data: OpenData, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_data(pod_namespace="paddle-system") as data:
        Failing(data, monkeypatch, Permanent("Forbidden", "secrets is forbidden"), "vault")
        await data.create(make_sample_set(secretRef={"name": "engine", "namespace": "vault"}))
        await data.drive()
        refused = await data.expect_condition("Accepted", "NamespaceNotServed")
        assert refused["message"].endswith(
            "kubectl -n vault create role read-engine --verb=get --resource=secrets --resource-name=engine"
            " && kubectl -n vault create rolebinding read-engine --role=read-engine"
            " --serviceaccount=paddle-system:dataset-controller"
        )
        assert "paddlewheel-dataset-namespace" not in refused["message"]


async def test_a_set_is_deleted_where_the_namespace_is_not_served_any_more(
    far: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = far
    await data.ready_set(partitions=2)
    withdraw_rights(data, monkeypatch, "default")
    await data.delete(SET)
    await data.wait(10)
    assert not await data.exists(SET)
    assert data.facts()[-1] == "SampleSetDeleted"
    [clear] = data.runtime.runs("clear")
    assert clear.clear
    assert clear.clear.partitions == [0, 1]
    assert await data.labels() == {}
    assert await data.objects(ports.PERSISTENT_VOLUMES) == []
    # The garbage collector finds the set in the claim's owner reference.
    assert await data.objects(ports.PERSISTENT_VOLUME_CLAIMS) == []
    for resource in (ports.SERVICES, ports.STATEFUL_SETS):
        assert await data.objects(resource) == []
    assert [secret["metadata"]["name"] for secret in await data.objects(ports.SECRETS)] == ["digits"]


async def test_a_deletion_that_lacks_rights_says_so_while_it_lasts(
    far: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = far
    await data.ready_set()
    data.runtime.script = {"clear": RunPhase.RUNNING}
    withdraw_rights(data, monkeypatch, "default")
    await data.delete(SET)
    await data.wait(6)
    waits = await data.expect_condition("Ready", "NamespaceNotServed")
    assert "kubectl -n default create rolebinding paddlewheel-dataset-namespace" in waits["message"]
    assert await data.exists(FAR_RUNTIME, ports.STATEFUL_SETS)


def withdraw_rights(data: DataHarness, monkeypatch: pytest.MonkeyPatch, namespace: str) -> None:
    """As when the RoleBinding is deleted: what is not seen of all namespaces is forbidden in this one."""
    seen_everywhere = (ports.SAMPLE_SETS, ports.SAMPLE_JOBS, ports.EVENTS)
    cluster = data.cluster

    def forbid(verb: str, key_of: Callable[[Any], Key]) -> None:
        original = getattr(cluster, verb)

        async def call(resource: Resource, what: Any, *rest: Any, **named: Any) -> Any:
            is_read = verb == "get" and resource is not ports.SECRETS
            if key_of(what).namespace == namespace and resource not in seen_everywhere and not is_read:
                raise Permanent("Forbidden", f"cannot {verb} {resource.plural} in {namespace}")
            return await original(resource, what, *rest, **named)

        monkeypatch.setattr(cluster, verb, call)

    for verb in ("get", "patch", "delete"):
        forbid(verb, lambda key: key)
    forbid("create", key_of)


async def test_a_set_goes_on_while_the_api_server_shows_no_secret(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = await data.ready_set()
    before = await data.get(Key("default", "digits-runtime"), ports.SECRETS)
    failing = Failing(data, monkeypatch, Retry("Unavailable", "the API server is away"))
    await data.wait(60)
    await data.runtime.report(uid, 1)
    await data.drive()
    await data.expect_phase("Ready")
    await data.expect_condition("Accepted", "Accepted")
    failing.error = None
    assert await data.get(Key("default", "digits-runtime"), ports.SECRETS) == before


class Failing:
    """Makes every `get` of a Secret (of one namespace) fail while `error` is set."""

    def __init__(
        self,
        data: DataHarness,
        monkeypatch: pytest.MonkeyPatch,
        error: Permanent | Retry | None,
        namespace: str = "",
    ) -> None:
        self.error = error
        original = data.cluster.get

        async def get(resource: Resource, key: Key, **rest: Any) -> Object:
            is_meant = namespace in ("", key.namespace)
            if self.error is not None and resource is ports.SECRETS and is_meant:
                raise self.error
            return await original(resource, key, **rest)

        monkeypatch.setattr(data.cluster, "get", get)


async def test_a_secret_is_read_once_in_a_while_not_in_every_pass(data: DataHarness) -> None:
    uid = await data.ready_set()
    await data.wait(5)
    with data.recorded_calls() as calls:
        for _ in range(10):
            await data.runtime.report(uid, 1)
            await data.wait(1)
    assert sum(call[:2] == ("get", "secrets") for call in calls) <= 3
