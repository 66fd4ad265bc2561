"""The certificates of the bus, as PEM files: an authority, the servers' certificate, the key of bus-auth."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Files = dict[str, bytes]
"""File name to content."""
AUTHORITY, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"

_AUTHORITY_DAYS, _SERVER_DAYS = 3650, 365
"""Days for which a certificate is valid."""
_AUTHORITY_RENEWAL_DAYS, _SERVER_RENEWAL_DAYS = 730, 60
"""Days before its end at which a certificate is renewed. People copy that of the authority by hand."""
_ADDRESS = "127.0.0.1"
"""In the servers' certificate, for a forwarded port."""

_PrivateKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey


def make_authority(now: datetime) -> Files:
    """A certificate that signs the servers' certificates, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _authority(_name("paddlewheel-bus"), key, _identifier(key), now)


def renew_authority(authority: Files, now: datetime) -> Files:
    """The authority with a later end. Its key and its names stay, so clients with the former certificate
    accept the servers until that one ends."""
    before, key = _read_authority(authority)
    return _authority(before.subject, key, _identifier_of(before), now)


def _authority(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, identifier: x509.SubjectKeyIdentifier, now: datetime
) -> Files:
    usage = {"key_cert_sign": True, "crl_sign": True, "digital_signature": True}
    made = (
        _builder(name, key, now, _AUTHORITY_DAYS)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(**usage), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, SHA256())
    )
    return {CERTIFICATE: _pem(made), KEY: _pem_key(key)}


def make_server(authority: Files, names: Sequence[str], now: datetime) -> Files:
    """The servers' certificate for these DNS names, its key, and the authority's certificate."""
    issuer, signing = _read_authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = [*(x509.DNSName(name) for name in names), x509.IPAddress(ip_address(_ADDRESS))]
    # The servers of a cluster are clients of each other.
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    made = (
        _builder(_name(names[0]), key, now, _SERVER_DAYS)
        .issuer_name(issuer.subject)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True, key_encipherment=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(_identifier(key), critical=False)
        # Clients that check strictly, as Python 3.13 does by default, refuse a certificate without it.
        .add_extension(_identifier_of_issuer(issuer), critical=False)
        .sign(signing, SHA256())
    )
    return {AUTHORITY: authority[CERTIFICATE], CERTIFICATE: _pem(made), KEY: _pem_key(key)}


def make_key(now: datetime) -> Files:
    """The key with which bus-auth signs, and a certificate that carries its public half to the servers."""
    key = Ed25519PrivateKey.generate()
    name = _name("bus-auth")
    made = _builder(name, key, now, _AUTHORITY_DAYS).issuer_name(name).sign(key, None)
    return {CERTIFICATE: _pem(made), KEY: _pem_key(key)}


def check_readable(files: Files) -> None:
    """Raises ValueError when the certificate or its key is not PEM."""
    for file, load in ((CERTIFICATE, x509.load_pem_x509_certificate), (KEY, _load_key)):
        try:
            load(files[file])
        except ValueError as error:
            raise ValueError(f"{file} is unreadable: {error}") from error


def _load_key(content: bytes) -> object:
    return load_pem_private_key(content, password=None)


def is_lasting(authority: Files, now: datetime) -> bool:
    """Whether the authority's certificate does not end soon."""
    made = x509.load_pem_x509_certificate(authority[CERTIFICATE])
    return now < made.not_valid_after_utc - timedelta(days=_AUTHORITY_RENEWAL_DAYS)


def first_end(certificates: bytes) -> datetime:
    """When the first of them ends. Raises ValueError."""
    return min(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(certificates))


def is_current(server: Files, authority: Files, names: Sequence[str], now: datetime) -> bool:
    """Whether the servers' certificate is of the authority, for these names, and does not end soon."""
    if not {AUTHORITY, CERTIFICATE, KEY} <= set(server) or server[AUTHORITY] != authority[CERTIFICATE]:
        return False
    try:
        check_readable(server)
        made = x509.load_pem_x509_certificate(server[CERTIFICATE])
        named = made.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    if named != _identifier_of_issuer(x509.load_pem_x509_certificate(authority[CERTIFICATE])):
        return False
    ends_soon = now >= made.not_valid_after_utc - timedelta(days=_SERVER_RENEWAL_DAYS)
    return set(names_of(server)) == set(names) and not ends_soon


def _read_authority(files: Files) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = load_pem_private_key(files[KEY], password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not an EC key")
    return x509.load_pem_x509_certificate(files[CERTIFICATE]), key


def _builder(name: x509.Name, key: _PrivateKey, now: datetime, days: int) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clock of a client may be some minutes behind.
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
    )


def _identifier(key: _PrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _identifier_of(authority: x509.Certificate) -> x509.SubjectKeyIdentifier:
    """The identifier in its certificate. Newer releases of Helm do not compute it as `_identifier` does."""
    try:
        return authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.SubjectKeyIdentifier.from_public_key(authority.public_key())


def _identifier_of_issuer(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(_identifier_of(authority))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def names_of(server: Files) -> tuple[str, ...]:
    """DNS names in the servers' certificate; () when it is missing or unreadable."""
    try:
        made = x509.load_pem_x509_certificate(server.get(CERTIFICATE, b""))
        found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return ()
    return tuple(found.get_values_for_type(x509.DNSName))


def _usage(**allowed: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in names})


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _pem_key(key: _PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
