"""The cluster's certificate authority."""

from __future__ import annotations

import base64
import json
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from paddlewheel.devcluster.certs import Authority
from paddlewheel.devcluster.kubeconfig import write_kubeconfig


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_client_certificate_has_user_and_groups_and_is_signed_by_the_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "demo")
    issued = load(authority.client("kubelet", "system:node:a", ["system:nodes"]).certificate)
    assert issued.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:a"
    assert issued.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"
    issued.verify_directly_issued_by(load(authority.identity.certificate))


def test_serving_certificate_names_its_hosts(tmp_path: Path) -> None:
    address = IPv4Address("198.18.0.2")
    issued = load(Authority(tmp_path, "demo").server("api", "api", ["kubernetes"], [address]).certificate)
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kubernetes"]
    assert names.get_values_for_type(x509.IPAddress) == [address]


def test_reopened_authority_returns_the_same_certificates(tmp_path: Path) -> None:
    first = Authority(tmp_path, "demo")
    before = first.client("admin", "admin").certificate.read_bytes()
    again = Authority(tmp_path, "demo")
    assert again.client("admin", "admin").certificate.read_bytes() == before
    assert again.token_key() == first.token_key()


def test_keys_are_readable_by_the_owner_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "demo")
    keys = [authority.identity.key, authority.client("admin", "admin").key, authority.token_key().key]
    assert [key.stat().st_mode & 0o777 for key in keys] == [0o600] * 3


def test_kubeconfig_is_self_contained(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", "demo")
    admin = authority.client("admin", "admin")
    path = write_kubeconfig(
        tmp_path / "kubeconfig",
        name="paddlewheel-demo",
        server="https://198.18.0.2:6443",
        authority=authority.identity.certificate,
        identity=admin,
    )
    written = json.loads(path.read_text())
    assert written["current-context"] == "paddlewheel-demo"
    assert written["clusters"][0]["cluster"]["server"] == "https://198.18.0.2:6443"
    encoded = written["users"][0]["user"]["client-certificate-data"]
    assert base64.b64decode(encoded) == admin.certificate.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
