"""A cluster's own certificate authority: signs serving and client certificates and keeps the token key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from paddlewheel.core.files import replace_file

_LIFETIME = dt.timedelta(days=3650)
_BACKDATE = dt.timedelta(hours=1)
API_SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True)
class Identity:
    """Paths of a certificate and its key, both PEM."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates into one directory and reuses those issued before."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.identity = self._files("ca")
        if not self.identity.key.exists():
            self._create()
        self._key = _load_key(self.identity.key)
        self._certificate = x509.load_pem_x509_certificate(self.identity.certificate.read_bytes())

    def client(self, file: str, user: str, groups: Sequence[str] = ()) -> Identity:
        """A client certificate; the API server authenticates it as `user` in `groups`."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._issue(file, subject, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def server(
        self, file: str, name: str, names: Sequence[str], addresses: Sequence[IPv4Address]
    ) -> Identity:
        """A serving certificate for the given DNS names and addresses."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        hosts: list[x509.GeneralName] = [x509.DNSName(host) for host in names]
        hosts += [x509.IPAddress(address) for address in addresses]
        alternatives = x509.SubjectAlternativeName(hosts)
        return self._issue(file, subject, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def token_key(self) -> Identity:
        """The key pair that signs service-account tokens; `certificate` is the bare public key."""
        files = Identity(self._folder / "sa.pub", self._folder / "sa.key")
        if not files.key.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            files.certificate.write_bytes(public)
            _write_key(files.key, key)
        return files

    def _create(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"paddlewheel-{self._name}")])
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True,
            content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = _builder(name, name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        self.identity.certificate.write_bytes(_sign(builder, key))
        _write_key(self.identity.key, key)

    def _issue(
        self,
        file: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> Identity:
        files = self._files(file)
        if files.key.exists():
            return files
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._certificate.subject, key.public_key())
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        files.certificate.write_bytes(_sign(builder, self._key))
        _write_key(files.key, key)
        return files

    def _files(self, file: str) -> Identity:
        return Identity(self._folder / f"{file}.crt", self._folder / f"{file}.key")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + _LIFETIME)
    )


def _sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """The key is written last and renamed into place: if it exists, so does its certificate."""
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    replace_file(path, text, 0o600)
