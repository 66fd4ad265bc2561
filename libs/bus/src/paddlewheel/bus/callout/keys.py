"""The key pair of the authorization service, in the three forms that NATS uses.

The key is an Ed25519 key in a PEM file, so cert-manager can make it, too. The service connects with it (user
key), signs rights with it (account key), and decrypts the server's requests with it (curve key). Three keys
would not be safer: the key that signs rights gives access to everything.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nkeys
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate
from nacl.exceptions import CryptoError
from nacl.public import Box, PublicKey
from nacl.signing import SigningKey, VerifyKey

from paddlewheel.core.errors import Permanent

_PREFIX_BYTE_CURVE = 23 << 3
"""Prefix byte of public curve keys, which begin with X; the `nkeys` package has only keys for signing."""
_SEALED = b"xkv1"
_ALGORITHM = "ed25519-nkey"
"""The name of Ed25519 in the JWTs of NATS, which JWT libraries do not know."""
ANOTHER_KEY = "AnotherKey"
"""Reason of the Permanent error when a request was encrypted for another key."""


class PublicKeys:
    """The public halves of the key, for the `auth_callout` block of the NATS server's configuration."""

    def __init__(self, key: VerifyKey) -> None:
        self.issuer = _encoded(nkeys.PREFIX_BYTE_ACCOUNT, bytes(key))
        """Verifies the rights that the service signs."""
        self.user = _encoded(nkeys.PREFIX_BYTE_USER, bytes(key))
        """The service's own user on the server."""
        self.xkey = _encoded(_PREFIX_BYTE_CURVE, bytes(key.to_curve25519_public_key()))
        """Encrypts the server's requests."""

    @classmethod
    def of_certificate(cls, file: Path) -> PublicKeys:
        """Read the public halves from the certificate of the key. Raises Permanent."""
        try:
            key = load_pem_x509_certificate(file.read_bytes()).public_key()
        except (OSError, ValueError) as error:
            raise _unusable(file, error) from error
        if not isinstance(key, Ed25519PublicKey):
            raise _unusable(file, "its key is not Ed25519")
        return cls(VerifyKey(key.public_bytes_raw()))


class CalloutKey:
    """The private key. Raises Permanent when the PEM file holds no Ed25519 key."""

    def __init__(self, file: Path) -> None:
        try:
            key = load_pem_private_key(file.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise _unusable(file, error) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise _unusable(file, "it is not an Ed25519 key")
        raw = key.private_bytes_raw()
        self._signing = SigningKey(raw)
        self.public = PublicKeys(self._signing.verify_key)
        self.seed = bytes(nkeys.encode_seed(raw, nkeys.PREFIX_BYTE_USER)).decode()
        """The seed of the user key, with which the service connects."""

    def sign(self, claims: Mapping[str, Any]) -> str:
        """A signed JWT in the form that NATS reads."""
        parts = ({"typ": "JWT", "alg": _ALGORITHM}, claims)
        signed = b".".join(_base64url(json.dumps(part, separators=(",", ":")).encode()) for part in parts)
        return b".".join((signed, _base64url(self._signing.sign(signed).signature))).decode()

    def open(self, sealed: bytes, sender: str) -> bytes:
        """Decrypt a message of the holder of the public curve key `sender`. Raises Permanent."""
        if not sealed.startswith(_SEALED):
            raise Permanent(
                "MalformedRequest", "the request is not encrypted: set auth_callout.xkey in nats.conf"
            )
        try:
            return bytes(self._box(sender).decrypt(sealed.removeprefix(_SEALED)))
        except CryptoError as error:
            raise Permanent(
                ANOTHER_KEY, "the server's configuration has another key of bus-auth than this process"
            ) from error

    def seal(self, plain: bytes, recipient: str) -> bytes:
        """Encrypt a message for the holder of the public curve key `recipient`. Raises Permanent."""
        return _SEALED + bytes(self._box(recipient).encrypt(plain))

    def _box(self, other: str) -> Box:
        return Box(self._signing.to_curve25519_private_key(), PublicKey(_decoded(_PREFIX_BYTE_CURVE, other)))


def _base64url(content: bytes) -> bytes:
    """Base64 without padding, as in RFC 7515."""
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _encoded(prefix: int, key: bytes) -> str:
    """Text of a public key: prefix, key and checksum in base32."""
    body = bytes([prefix]) + key
    return base64.b32encode(body + nkeys.crc16(bytearray(body)).to_bytes(2, "little")).decode().rstrip("=")


def _decoded(prefix: int, text: str) -> bytes:
    """Raises Permanent."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raw = b""
    body, checksum = raw[:-2], raw[-2:]
    if len(body) != 33 or body[0] != prefix or nkeys.crc16(bytearray(body)).to_bytes(2, "little") != checksum:
        raise Permanent("MalformedRequest", "the server's curve key cannot be read")
    return body[1:]


def _unusable(file: Path, why: object) -> Permanent:
    return Permanent("UnusableKey", f"{file}: {why}; an Ed25519 key in PEM (PKCS #8) is needed")
