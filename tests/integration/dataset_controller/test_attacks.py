"""What the author of a data set, or whoever holds dataset-controller's account, must not get.

Each test is a row of the threat list, on the real API server with the rights that the chart renders.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.dataset_controller.conftest import DataServiceHarness

from dataset_controller.domain.consent import NAMESPACE_ROLE, SHARED_WITH
from paddlewheel.contracts.dataset_names import pv_name
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import AlreadyExists
from paddlewheel.kube import ports
from paddlewheel.kube.ports import Object, Resource
from paddlewheel.testkit.charts import Manifest, services
from paddlewheel.testkit.kubernetes import run_kubectl
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set, make_secret
from paddlewheel.testkit.wait import eventually

RBAC = "rbac.authorization.k8s.io"
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
RBAC_RESOURCES = {
    "ClusterRole": Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    "ClusterRoleBinding": Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    "Role": Resource(RBAC, "v1", "roles", "Role"),
    "RoleBinding": Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
}
ACCOUNT = "dataset-controller"


class Account:
    """The service's account in a namespace of its own, with exactly the rights of the chart's rendering."""

    def __init__(self, data: DataServiceHarness, directory: Path) -> None:
        self._data, self.kubeconfig = data, directory / "account.kubeconfig"

    async def create(self) -> None:
        """The account, its rights, and a kubeconfig with its token."""
        home = await self._data.move_home()
        await self._data.cluster.create(ACCOUNTS, {"metadata": {"name": ACCOUNT, "namespace": home}})
        for manifest in services():
            if self._is_of_account(manifest):
                await self._create(manifest)
        given = yaml.safe_load(Path(self._data.backends.kubeconfig).read_text())
        where = ["-n", home]
        token = run_kubectl(self._data.backends.kubeconfig, "create", "token", ACCOUNT, *where).stdout.strip()
        assert token
        given["users"] = [{"name": user["name"], "user": {"token": token}} for user in given["users"]]
        self.kubeconfig.write_text(yaml.safe_dump(given))
        await self._reads_secrets_in(home)

    async def serve(self, namespace: str) -> None:
        """As the command in the condition does."""
        await self._create(
            {
                "kind": "RoleBinding",
                "metadata": {"name": NAMESPACE_ROLE, "namespace": namespace},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": NAMESPACE_ROLE},
                "subjects": [{"name": ACCOUNT}],
            }
        )
        await self._reads_secrets_in(namespace)

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """With the account's token."""
        return run_kubectl(str(self.kubeconfig), *arguments)

    async def _reads_secrets_in(self, namespace: str) -> None:
        """Wait for a binding: the API server decides by a cache that follows it."""
        asked = ("-n", namespace, "auth", "can-i", "get", "secrets")
        await eventually(lambda: self.kubectl(*asked).returncode == 0, what="the binding is in force")

    def _is_of_account(self, manifest: Manifest) -> bool:
        if manifest["kind"] not in RBAC_RESOURCES:
            return False
        if subjects := manifest.get("subjects"):
            return any(subject["name"] == ACCOUNT for subject in subjects)
        name = manifest["metadata"]["name"]
        return "dataset" in name or name == "leases"

    async def _create(self, manifest: Mapping[str, Any]) -> None:
        """What is of the cluster gets a name of this test alone: others install the chart there."""
        home, kind = self._data.home, manifest["kind"]
        made: Object = {**manifest, "metadata": {"name": manifest["metadata"]["name"]}}
        if kind.startswith("Cluster"):
            made["metadata"]["name"] += f"-{home}"
        if (role := manifest.get("roleRef")) and role["kind"] == "ClusterRole":
            made["roleRef"] = {**role, "name": f"{role['name']}-{home}"}
        if not kind.startswith("Cluster"):
            wanted = manifest["metadata"]["namespace"]
            made["metadata"]["namespace"] = home if wanted == "paddle-system" else wanted
        if "subjects" in made:
            made["subjects"] = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}]
        with suppress(AlreadyExists):
            await self._data.cluster.create(RBAC_RESOURCES[kind], made)


@pytest.fixture
async def account(data: DataServiceHarness, tmp_path: Path) -> Account:
    made = Account(data, tmp_path)
    await made.create()
    return made


ATTEMPTS = {
    "get by name": ["get", "secret", "nats-ca"],
    "list": ["get", "secrets"],
    "list all": ["get", "secrets", "-A"],
    "watch": ["get", "secrets", "--watch", "--request-timeout=5s"],
    "create": ["create", "secret", "generic", "x"],
    "delete": ["delete", "secret", "nats-ca"],
    "pod that mounts it": ["create", "deployment", "x", "--image=x"],
    "token of another": ["create", "token", "default"],
}


async def test_attack_the_services_account_reads_secrets_of_a_namespace_that_is_not_served(
    data: DataServiceHarness, account: Account
) -> None:
    """In its own namespace, it may read Secrets by name."""
    await data.create(make_secret("nats-ca", values={"tls.key": "KEY"}), ports.SECRETS)
    for name, arguments in ATTEMPTS.items():
        tried = account.kubectl("-n", data.namespace, *arguments)
        assert (tried.returncode != 0, "orbidden" in tried.stderr) == (True, True), (name, tried)
        assert "KEY" not in tried.stdout
    for verb in ("create", "patch"):
        stateful_set = account.kubectl("-n", data.namespace, "auth", "can-i", verb, "statefulsets.apps")
        assert stateful_set.stdout.strip() == "no"
    listed = account.kubectl("-n", data.home, "get", "secrets")
    assert (listed.returncode != 0, "orbidden" in listed.stderr) == (True, True)


async def test_attack_the_services_account_lists_secrets_of_a_namespace_that_is_served(
    data: DataServiceHarness, account: Account
) -> None:
    await account.serve(data.namespace)
    await data.create(make_secret("own"), ports.SECRETS)
    assert account.kubectl("-n", data.namespace, "get", "secret", "own").returncode == 0
    refused = (
        ["get", "secrets"],
        ["get", "secrets", "--watch", "--request-timeout=5s"],
        ["create", "secret", "generic", "x"],
        ["create", "deployment", "x", "--image=x"],
        ["run", "x", "--image=x"],
    )
    for arguments in refused:
        tried = account.kubectl("-n", data.namespace, *arguments)
        assert (tried.returncode != 0, "orbidden" in tried.stderr) == (True, True), tried


async def test_a_namespace_is_served_once_it_is_bound_and_the_rights_suffice(
    data: DataServiceHarness, account: Account
) -> None:
    """From the refusal to the end of the set's life, only with the rights of the chart."""
    await data.start(KUBECONFIG=str(account.kubeconfig))
    key = await data.create_set()
    refused = await data.wait_condition(key, "Accepted", "NamespaceNotServed")
    assert f"kubectl -n {data.namespace} create rolebinding {NAMESPACE_ROLE}" in refused["message"]
    assert f"--serviceaccount={data.home}:{ACCOUNT}" in refused["message"]
    await account.serve(data.namespace)
    await data.wait_phase(key, "Ready")
    job = make_sample_job(type="sync", secretRef={"name": "digits"})
    job["metadata"]["namespace"] = data.namespace
    created = await data.create(job, ports.SAMPLE_JOBS)
    await data.wait_phase(created, "Succeeded", resource=ports.SAMPLE_JOBS)
    assert await data.objects(ports.STATEFUL_SETS) == []
    assert await data.exists(data.runtime_key(), ports.STATEFUL_SETS)
    await data.cluster.delete(ports.SAMPLE_SETS, key)
    await data.wait_gone(key)
    assert not await data.exists(data.runtime_key(), ports.STATEFUL_SETS)
    assert not await data.exists(data.runtime_key(), ports.SECRETS)
    conditions = [c for o in data.changes for c in o.get("status", {}).get("conditions", ())]
    assert not [c["message"] for c in conditions if c["type"] == "Reconciled" and c["status"] == "False"]


@pytest.fixture
async def vault(data: DataServiceHarness) -> str:
    """Another team's namespace with an engine's Secret."""
    name = f"{data.namespace}-vault"
    await data.cluster.create(ports.NAMESPACES, {"metadata": {"name": name}})
    await data.cluster.create(ports.SECRETS, make_secret("engine", name))
    return name


async def test_attack_a_set_uses_the_secret_of_another_namespace(
    data: DataServiceHarness, vault: str
) -> None:
    """Refused until its owner names this namespace; nothing of it is copied before."""
    await data.start()
    key = await data.create_set_only(secretRef={"name": "engine", "namespace": vault})
    refused = await data.wait_condition(key, "Accepted", "SecretNotShared")
    share = f"{SHARED_WITH}={data.namespace}"
    assert f"kubectl -n {vault} annotate secret engine {share}" in refused["message"]
    assert not await data.exists(data.runtime_key(), ports.SECRETS)
    volumes = await data.cluster.list(ports.PERSISTENT_VOLUMES)
    assert pv_name(data.namespace, "digits") not in [volume["metadata"]["name"] for volume in volumes]
    annotations = {"metadata": {"annotations": {SHARED_WITH: data.namespace}}}
    await data.cluster.patch(ports.SECRETS, Key(vault, "engine"), annotations)
    await data.wait_phase(key, "Ready")
    await data.cluster.delete(ports.NAMESPACES, Key("", vault))


async def test_attack_a_set_uses_the_keys_of_the_bus(data: DataServiceHarness, vault: str) -> None:
    """The release's namespace, even if somebody shared the Secret."""
    annotations = {"metadata": {"annotations": {SHARED_WITH: data.namespace}}}
    await data.cluster.patch(ports.SECRETS, Key(vault, "engine"), annotations)
    data.home = vault
    await data.start()
    key = await data.create_set_only(secretRef={"name": "engine", "namespace": vault})
    refused = await data.wait_condition(key, "Accepted", "SecretNotShared")
    assert "Secrets of Paddlewheel's own namespace are never used" in refused["message"]
    assert not await data.exists(data.runtime_key(), ports.SECRETS)


REFUSED_SETS: dict[str, tuple[dict[str, Any], str]] = {
    "a directory of the node": ({"source": {"uri": "file:///var/lib/kubelet"}}, "SourceNotAllowed"),
    "the keys of the bus": ({"source": {"uri": "file:///etc/paddlewheel/bus"}}, "SourceNotAllowed"),
    "an encoded climb": ({"source": {"uri": "file:///srv/%2e%2e/etc"}}, "SourceNotAllowed"),
    "a cache of the node": (
        {"cache": {"levels": [{"path": "/var/lib/kubelet/pods"}]}},
        "CachePathNotAllowed",
    ),
    "a cache among keys": ({"cache": {"levels": [{"path": "/etc/paddlewheel/secrets"}]}}, "InvalidSpec"),
    "all caches": ({"cache": {"levels": [{"path": "/var/lib/paddlewheel/cache/*"}]}}, "InvalidSpec"),
    "a cache as an option": (
        {"csi": {"driver": "juicefs", "juiceFSMountOptions": {"cache-dir": "/var/lib/kubelet"}}},
        "CachePathNotAllowed",
    ),
    "an option with another": (
        {"csi": {"driver": "juicefs", "juiceFSMountOptions": {"sub-dir": "a;--log=/etc/x"}}},
        "InvalidSpec",
    ),
}


async def test_attack_a_set_names_places_of_the_node(data: DataServiceHarness) -> None:
    """Refused with the field and the remedy, and no pod is made."""
    await data.start()
    await data.create(make_secret(), ports.SECRETS)
    for number, (name, (spec, reason)) in enumerate(REFUSED_SETS.items()):
        key = await data.create(make_sample_set(f"bad-{number}", secretRef={"name": "digits"}, **spec))
        refused = await data.wait_condition(key, "Accepted", reason)
        assert refused["message"].startswith("spec."), name
    assert await data.objects(ports.STATEFUL_SETS) == []


async def test_attack_two_sets_of_two_namespaces_name_one_cache(data: DataServiceHarness) -> None:
    """Each pod mounts its own subdirectory of it, and nothing else of the root."""
    await data.start()
    level = {"levels": [{"path": "/ssd/shared"}]}
    mounted = []
    for name in ("one", "two"):
        key = await data.create_set(name, cache=level)
        await data.wait_phase(key, "Ready")
        uid = (await data.get(key))["metadata"]["uid"]
        pod = await data.get(data.key(f"{name}-runtime-0"), ports.PODS)
        [cache] = [m for m in pod["spec"]["containers"][0]["volumeMounts"] if m["name"].startswith("cache-")]
        assert cache["subPath"] == f"shared/{data.namespace}/{uid}"
        assert cache["mountPath"] == f"/ssd/shared/{data.namespace}/{uid}"
        mounted.append(cache["mountPath"])
    assert mounted[0] != mounted[1]


async def test_attack_an_engine_secret_names_files(data: DataServiceHarness) -> None:
    await data.start()
    values = {"name": "vol", "storage": "file", "bucket": "/var/lib/kubelet/", "metaurl": "redis://r/0"}
    await data.create(make_secret(values=values), ports.SECRETS)
    key = await data.create_set_only()
    refused = await data.wait_condition(key, "Accepted", "InvalidSecret")
    assert "storage: 'file' is not one of" in refused["message"]
    await eventually(lambda: data.phases() == ["NotBound"])
