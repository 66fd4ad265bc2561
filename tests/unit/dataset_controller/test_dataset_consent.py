"""Which Secrets are read for whom: its own namespace's, and what others share; never this service's."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.dataset_controller.conftest import DataHarness, OpenData

from dataset_controller.domain.consent import SHARED_WITH, check_consent, check_namespace
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.kube import ports
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
    """Makes every `get` of a Secret fail while `error` is set."""

    def __init__(
        self, data: DataHarness, monkeypatch: pytest.MonkeyPatch, error: Permanent | Retry | None
    ) -> None:
        self.error = error
        original = data.cluster.get

        async def get(resource: Resource, key: Key, **rest: Any) -> Object:
            if self.error is not None and resource is ports.SECRETS:
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
