"""Certificates across upgrades: Helm looks at what a real API server holds."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
from cryptography import x509

from bus_auth.certificates import Certificates
from paddlewheel import kube
from paddlewheel.bus.callout.keys import CalloutKey, PublicKeys
from paddlewheel.core.clock import SystemClock
from paddlewheel.devcluster.commands import tool
from paddlewheel.testkit.charts import CHARTS, REPOSITORY

pytestmark = pytest.mark.long
"""Each installs the chart with its cluster-wide objects."""

Secrets = dict[str, dict[str, bytes]]
CHART = CHARTS / "paddlewheel"
LANDED = "64632e6a"
"""The version before this one."""
RENDERED = "f16ae64f"
"""The last version whose chart made the certificates itself."""


def chart_of(version: str, folder: Path) -> Path:
    """The chart of that version. Skips the test in a clone without its history."""
    found = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", version, "deploy/charts"], capture_output=True, check=False
    )
    if found.returncode:
        pytest.skip(f"this clone has no commit {version}")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "deploy/charts/paddlewheel"


class Release:
    """The chart installed where no pod ever runs."""

    def __init__(self, kubeconfig: str) -> None:
        self.namespace = f"security-{uuid4().hex[:8]}"
        self._kubeconfig = kubeconfig
        self._where = ("--kubeconfig", kubeconfig, "--namespace", self.namespace)

    def upgrade(self, *values: str, chart: Path = CHART) -> Secrets:
        """Install or upgrade; returns the Secrets after it."""
        self.upgrade_says(*values, chart=chart)
        return self.secrets()

    def upgrade_says(self, *values: str, chart: Path = CHART) -> str:
        """Install or upgrade; returns Helm's output."""
        flags = [flag for value in ("crds.install=false", *values) for flag in ("--set", value)]
        return self._run("helm", "upgrade", "--install", "security", str(chart), "--create-namespace", *flags)

    def apply(self, *values: str, chart: Path = CHART) -> None:
        """Use `kubectl apply` for the manifests that Helm renders without a cluster."""
        command = [tool("helm"), "template", "security", str(chart), "--namespace", self.namespace]
        flags = [flag for value in ("crds.install=false", *values) for flag in ("--set", value)]
        rendered = subprocess.run([*command, *flags], capture_output=True, check=True)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        manifests = b"\n---\n".join([orjson.dumps(namespace), rendered.stdout])
        command = [tool("kubectl"), "--kubeconfig", self._kubeconfig, "apply", "--filename", "-"]
        # Without a namespace: the chart has a Role in another one.
        ended = subprocess.run(command, input=manifests, capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr.decode()

    def follow(self, section: str, folder: Path) -> None:
        """Run the commands of a section of docs/tasks/upgrade.md."""
        page = (REPOSITORY / "docs/tasks/upgrade.md").read_text()
        [block] = re.findall(
            r"```bash[^\n]*\n(.*?)```",
            page.partition(f"\n### {section}\n")[2].partition("\n##")[0],
            re.DOTALL,
        )
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.replace("paddle-system", self.namespace)],
            cwd=folder,
            env={
                **os.environ,
                "KUBECONFIG": self._kubeconfig,
                "PATH": f"{Path(tool('kubectl')).parent}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr

    def fill(self, *names: str) -> Secrets:
        """Have bus-auth fill its Secrets, for servers of these further names; returns all Secrets."""

        async def once() -> None:
            async with await kube.connect(self._kubeconfig) as cluster:
                with tempfile.TemporaryDirectory() as folder:
                    given = (cluster, self.namespace, ("nats", *names), Path(folder), SystemClock())
                    await Certificates(*given).begin()

        asyncio.run(once())
        return self.secrets()

    def secrets(self) -> Secrets:
        """File name to content, by Secret."""
        found = orjson.loads(self._run("kubectl", "get", "secrets", "-o", "json"))["items"]
        return {
            item["metadata"]["name"]: {k: base64.b64decode(v) for k, v in item.get("data", {}).items()}
            for item in found
            if not item["type"].startswith("helm.sh/")
        }

    def delete(self, *names: str) -> None:
        """Secrets."""
        self._run("kubectl", "delete", "secret", *names)

    def own_server_certificate(self, authority: str) -> None:
        """A Secret that the chart does not create, with this file of the authority."""
        self._run("kubectl", "create", "namespace", self.namespace)
        self._run(
            "kubectl", "create", "secret", "generic", "nats-tls-server", f"--from-literal=ca.crt={authority}"
        )

    def published_authority(self) -> str:
        """The file that clients get."""
        return self._run("kubectl", "get", "configmap", "bus-ca", "-o", r"jsonpath={.data.ca\.crt}")

    def egress_exceptions(self) -> list[str]:
        """Addresses that agents must not reach."""
        found = orjson.loads(self._run("kubectl", "get", "networkpolicy", "cache-runtime", "-o", "json"))
        return [
            cidr for peer in found["spec"]["egress"][0]["to"] for cidr in peer["ipBlock"].get("except", [])
        ]

    def tenant(self) -> str:
        """A further namespace."""
        name = f"{self.namespace}-{uuid4().hex[:4]}"
        self._run("kubectl", "create", "namespace", name)
        return name

    def drop(self, namespace: str, *flags: str) -> None:
        """Delete a further namespace."""
        self._run("kubectl", "delete", "namespace", namespace, "--ignore-not-found", *flags)

    def made_in(self, namespace: str) -> set[str]:
        """Kinds and names of what the release has made there."""
        label = "--selector=app.kubernetes.io/instance=security"
        kinds = "rolebindings,networkpolicies"
        found = orjson.loads(self._run("kubectl", "-n", namespace, "get", kinds, label, "-o", "json"))
        return {f"{item['kind']}/{item['metadata']['name']}" for item in found["items"]}

    def hold(self, namespace: str) -> None:
        """Have its deletion never end, until it is let go."""
        self._run("kubectl", "-n", namespace, "create", "configmap", "held")
        self._finalize(namespace, "tests.paddlepaddle.org/held")

    def let_go(self, namespace: str) -> None:
        """Its deletion may end."""
        self._finalize(namespace)

    def _finalize(self, namespace: str, *finalizers: str) -> None:
        patch = orjson.dumps({"metadata": {"finalizers": finalizers or None}}).decode()
        self._run("kubectl", "-n", namespace, "patch", "configmap", "held", "--type=merge", "--patch", patch)

    def uninstall(self) -> None:
        """Everything."""
        self._run("helm", "uninstall", "security", "--ignore-not-found")
        # What `apply` has made outside the namespace.
        label = "--selector=app.kubernetes.io/instance=security"
        self._run("kubectl", "delete", "clusterroles,clusterrolebindings", label)
        self._run("kubectl", "delete", "roles,rolebindings", label, "--namespace", "kube-node-lease")
        self._run("kubectl", "delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found")

    def _run(self, program: str, *arguments: str, stdin: str | None = None) -> str:
        command = [tool(program), *self._where, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, input=stdin)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def release(api_server: str) -> Iterator[Release]:
    made = Release(api_server)
    try:
        yield made
    finally:
        made.uninstall()


BUS = ("nats-ca", "nats-tls-server", "bus-auth-key")


def bus_of(secrets: Secrets) -> Secrets:
    return {name: secrets[name] for name in BUS}


def test_certificates_are_made_once_and_kept(release: Release) -> None:
    assert bus_of(release.upgrade()) == {name: {} for name in BUS}

    first = bus_of(release.fill())
    assert all(first.values())
    assert bus_of(release.upgrade("rollout=b")) == first
    assert bus_of(release.fill()) == first

    second = bus_of(release.fill("bus.example"))
    assert {name for name in first if first[name] != second[name]} == {"nats-tls-server"}
    server = x509.load_pem_x509_certificate(second["nats-tls-server"]["tls.crt"])
    server.verify_directly_issued_by(x509.load_pem_x509_certificate(first["nats-ca"]["tls.crt"]))
    assert bus_of(release.upgrade("rollout=c")) == second

    release.delete("nats-ca")
    release.upgrade()
    third = bus_of(release.fill())
    assert {name for name in second if second[name] != third[name]} == {"nats-ca", "nats-tls-server"}


def test_manifests_that_are_applied_twice_leave_the_certificates_alone(release: Release) -> None:
    """Argo CD applies what Helm renders without a cluster, too."""
    release.apply()
    first = release.fill()

    release.apply()

    assert bus_of(release.secrets()) == bus_of(first)
    assert bus_of(release.fill()) == bus_of(first)


@pytest.mark.parametrize("program", ["helm", "kubectl"])
def test_an_upgrade_from_the_last_landed_version_loses_no_secret(
    release: Release, tmp_path: Path, program: str
) -> None:
    install = release.upgrade if program == "helm" else release.apply
    install(chart=chart_of(LANDED, tmp_path))
    filled = release.fill()
    assert all(filled.values())

    install()

    # Without a cluster to look at, each rendering makes another key of progress.
    lasting = bus_of if program == "kubectl" else dict
    assert lasting(release.fill()) == lasting(filled)


@pytest.mark.parametrize("values", [(), ("nats.auth=tokens",)], ids=["certificates", "tokens"])
def test_an_upgrade_from_a_chart_that_rendered_the_authority_keeps_it(
    release: Release, tmp_path: Path, values: tuple[str, ...]
) -> None:
    """Helm takes away what it rendered before, unless this chart renders it again."""
    found = release.upgrade(*values, chart=chart_of(RENDERED, tmp_path))
    kept = {name: found[name] for name in ("nats-ca", "job-controller-progress")}
    assert all(kept.values())

    def still(secrets: Secrets) -> bool:
        return {name: secrets[name] for name in kept} == kept

    assert still(release.upgrade())
    filled = release.fill("bus.example")
    assert still(filled)
    assert all(bus_of(filled).values())
    # bus-auth has replaced the servers' certificate, which Helm has to render as it is now.
    assert bus_of(release.upgrade("rollout=b")) == bus_of(filled)
    assert bus_of(release.fill("bus.example")) == bus_of(filled)


@pytest.mark.parametrize("values", [(), ("nats.auth=tokens",)], ids=["certificates", "tokens"])
def test_manifests_with_a_rendered_authority_are_replaced_as_the_upgrade_page_describes(
    release: Release, tmp_path: Path, values: tuple[str, ...]
) -> None:
    release.apply(*values, chart=chart_of(RENDERED, tmp_path))
    before = {name: data for name, data in release.secrets().items() if name in ("nats-ca", "bus-auth-key")}
    assert len(before) == 1 + bool(values)
    with pytest.raises(AssertionError, match="field is immutable"):
        release.apply()

    release.follow("Without Helm's access to the cluster", tmp_path)
    release.apply()

    first = release.fill()
    assert {name: first[name] for name in before} == before
    release.apply()
    assert bus_of(release.fill()) == bus_of(first)


def test_the_upgrade_page_makes_what_certificates_of_ones_own_need(release: Release, tmp_path: Path) -> None:
    release.own_server_certificate("the authority")

    release.follow("Certificates of your own", tmp_path)

    for name, content in release.secrets()["bus-auth-key"].items():
        (tmp_path / name).write_bytes(content)
    assert (
        CalloutKey(tmp_path / "tls.key").public.user == PublicKeys.of_certificate(tmp_path / "tls.crt").user
    )
    assert release.published_authority() == "the authority"


def test_the_key_of_progress_is_kept_for_running_jobs_have_their_tokens(release: Release) -> None:
    release.upgrade()
    before = release.secrets()["job-controller-progress"]

    release.upgrade("rollout=b")
    assert release.secrets()["job-controller-progress"] == before

    release.delete("job-controller-progress")
    release.upgrade()
    assert release.secrets()["job-controller-progress"] != before


def test_the_api_servers_addresses_are_found_in_the_cluster(release: Release) -> None:
    release.upgrade()

    exceptions = release.egress_exceptions()

    assert len(exceptions) >= 2, "the Service's address and one behind it"
    assert all(cidr.endswith("/32") for cidr in exceptions)


def with_objects_in(*namespaces: str) -> tuple[str, ...]:
    """Values that have the chart make each RoleBinding that it makes in tenants' namespaces."""
    listed = "{" + ",".join(namespaces) + "}"
    team = "nats.subscribers[0]"
    return (
        f"{team}.name=vision",
        f"{team}.namespaces={listed}",
        f"{team}.members={{{namespaces[0]}/notifier}}",
        f"datasetController.namespaces={listed}",
    )


IN_TENANTS = {
    "RoleBinding/paddlewheel-team-vision",
    "RoleBinding/paddlewheel-dataset-controller",
}


def test_tenants_namespaces_that_are_gone_or_leave_are_named_and_stop_no_upgrade(release: Release) -> None:
    """The release's own is made by the first upgrade, after the chart has looked for it."""
    kept, gone, leaving = (release.tenant() for _ in range(3))
    values = with_objects_in(release.namespace, kept, gone, leaving)
    release.hold(leaving)
    try:
        assert "do not exist" not in release.upgrade_says(*values)
        for namespace in (kept, gone, leaving):
            assert release.made_in(namespace) == IN_TENANTS
        assert release.made_in(release.namespace) >= IN_TENANTS

        release.drop(gone)
        release.drop(leaving, "--wait=false")
        said = release.upgrade_says(*values)
        assert f"do not exist, or are being deleted: {gone}, {leaving}." in said
        assert release.made_in(kept) == IN_TENANTS
    finally:
        release.let_go(leaving)
        for namespace in (kept, gone):
            release.drop(namespace, "--wait=false")
