"""Certificates across upgrades: Helm looks at what a real API server holds."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from uuid import uuid4

import orjson
import pytest
from cryptography import x509

from paddlewheel.devcluster.commands import tool
from paddlewheel.testkit.charts import CHARTS

pytestmark = pytest.mark.long
"""Each installs the chart with its cluster-wide objects."""

Secrets = dict[str, dict[str, bytes]]


class Release:
    """The chart installed where no pod ever runs."""

    def __init__(self, kubeconfig: str) -> None:
        self.namespace = f"security-{uuid4().hex[:8]}"
        self._where = ("--kubeconfig", kubeconfig, "--namespace", self.namespace)

    def upgrade(self, *values: str) -> Secrets:
        """Install or upgrade; returns the Secrets of the bus after it."""
        self.upgrade_says(*values)
        return self.secrets()

    def upgrade_says(self, *values: str) -> str:
        """Install or upgrade; returns Helm's output."""
        flags = [flag for value in ("crds.install=false", *values) for flag in ("--set", value)]
        chart = str(CHARTS / "paddlewheel")
        return self._run("helm", "upgrade", "--install", "security", chart, "--create-namespace", *flags)

    def secrets(self) -> Secrets:
        """File name to content, by Secret."""
        return {name: data for name, data in self.all_secrets().items() if name.startswith("nats-")}

    def all_secrets(self) -> Secrets:
        """The same, of everything."""
        found = orjson.loads(self._run("kubectl", "get", "secrets", "-o", "json"))["items"]
        return {
            item["metadata"]["name"]: {k: base64.b64decode(v) for k, v in item["data"].items()}
            for item in found
            if not item["type"].startswith("helm.sh/")
        }

    def delete(self, *names: str) -> None:
        """Secrets."""
        self._run("kubectl", "delete", "secret", *names)

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
        self._run("kubectl", "delete", "namespace", self.namespace, "--wait=false", "--ignore-not-found")

    def _run(self, program: str, *arguments: str) -> str:
        command = [tool(program), *self._where, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def release(api_server: str) -> Iterator[Release]:
    made = Release(api_server)
    try:
        yield made
    finally:
        made.uninstall()


def test_certificates_are_kept_and_renewed(release: Release) -> None:
    first = release.upgrade()
    assert set(first) == {"nats-ca", "nats-tls-server"}
    assert release.upgrade("rollout=b") == first

    release.delete("nats-tls-server")
    second = release.upgrade()
    assert {name for name in first if first[name] != second[name]} == {"nats-tls-server"}
    authority = x509.load_pem_x509_certificate(first["nats-ca"]["tls.crt"])
    made = x509.load_pem_x509_certificate(second["nats-tls-server"]["tls.crt"])
    made.verify_directly_issued_by(authority)

    release.delete("nats-ca")
    third = release.upgrade()
    assert {name for name in second if second[name] == third[name]} == set()


def test_servers_whose_names_change_get_another_certificate_and_nobody_else_does(release: Release) -> None:
    first = release.upgrade()

    second = release.upgrade("nats.tls.serverNames={bus.example}")

    assert {name for name in first if first[name] != second[name]} == {"nats-tls-server"}
    server = x509.load_pem_x509_certificate(second["nats-tls-server"]["tls.crt"])
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "bus.example" in names.get_values_for_type(x509.DNSName)
    assert release.upgrade("nats.tls.serverNames={bus.example}") == second


def test_the_key_of_progress_is_kept_for_running_jobs_have_their_tokens(release: Release) -> None:
    release.upgrade()
    before = release.all_secrets()["job-controller-progress"]

    release.upgrade("rollout=b")
    assert release.all_secrets()["job-controller-progress"] == before

    release.delete("job-controller-progress")
    release.upgrade()
    assert release.all_secrets()["job-controller-progress"] != before


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
