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

pytestmark = pytest.mark.xdist_group("chart-releases")
"""Each installs the chart with its cluster-wide objects."""

Secrets = dict[str, dict[str, bytes]]


class Release:
    """The chart installed where no pod ever runs."""

    def __init__(self, kubeconfig: str) -> None:
        self.namespace = f"security-{uuid4().hex[:8]}"
        self._where = ("--kubeconfig", kubeconfig, "--namespace", self.namespace)

    def upgrade(self, *values: str) -> Secrets:
        """Install or upgrade; returns the Secrets of the bus after it."""
        flags = [flag for value in ("crds.install=false", *values) for flag in ("--set", value)]
        chart = str(CHARTS / "paddlewheel")
        self._run("helm", "upgrade", "--install", "security", chart, "--create-namespace", *flags)
        return self.secrets()

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

    def hash_of(self, service: str) -> str:
        """What restarts a service's pods when it changes."""
        found = orjson.loads(self._run("kubectl", "get", "deployment", service, "-o", "json"))
        annotations = found["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["paddlepaddle.org/bus-certificate"])

    def egress_exceptions(self) -> list[str]:
        """Addresses that agents of this namespace must not reach."""
        found = orjson.loads(self._run("kubectl", "get", "networkpolicy", "cache-runtime", "-o", "json"))
        return [
            cidr for peer in found["spec"]["egress"][0]["to"] for cidr in peer["ipBlock"].get("except", [])
        ]

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


def test_certificates_are_kept_renewed_one_by_one_and_all_together(release: Release) -> None:
    first = release.upgrade()
    restarts = release.hash_of("job-controller")
    assert release.upgrade("rollout=b") == first
    assert release.hash_of("job-controller") == restarts

    release.delete("nats-tls-job-controller")
    second = release.upgrade()
    renewed = {name for name in first if first[name] != second[name]}
    assert renewed == {"nats-tls-job-controller"}
    assert release.hash_of("job-controller") != restarts
    authority = x509.load_pem_x509_certificate(first["nats-ca"]["tls.crt"])
    made = x509.load_pem_x509_certificate(second["nats-tls-job-controller"]["tls.crt"])
    made.verify_directly_issued_by(authority)

    release.delete("nats-ca")
    third = release.upgrade()
    assert {name for name in second if second[name] == third[name]} == set()
    assert len({data["ca.crt"] for name, data in third.items() if name != "nats-ca"}) == 1


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
    release.upgrade(f"networkPolicies.runtime.namespaces={{{release.namespace}}}")

    exceptions = release.egress_exceptions()

    assert len(exceptions) >= 2, "the Service's address and one behind it"
    assert all(cidr.endswith("/32") for cidr in exceptions)
