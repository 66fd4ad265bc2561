"""Addresses in object stores, as manifests write them: `[NAME://]BUCKET[.ENDPOINT][/PREFIX]`.

An address may contain keys. They are separated from it, so that only Secrets store them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from paddlewheel.contracts.crds.limits import PATH_LENGTH
from paddlewheel.contracts.crds.options import SOURCE_SCHEMES


class InvalidAddress(ValueError):  # noqa: N818 - a verdict on input, not a failure
    """The address is invalid. The message names the field and what to do, and contains no keys."""


@dataclass(frozen=True)
class Credentials:
    """Keys of an object store; both may be "" for a public bucket. Never printed."""

    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.access_key or self.secret_key)

    def files(self, prefix: str) -> dict[str, str]:
        """The entries of a Secret that a pod mounts as files."""
        return {f"{prefix}.access-key": self.access_key, f"{prefix}.secret-key": self.secret_key}


@dataclass(frozen=True)
class Source:
    """An address without keys, and the keys that it contained."""

    uri: str
    keys: Credentials = Credentials()

    @property
    def scheme(self) -> str:
        return self.uri.partition("://")[0]


def parse_address(uri: str, where: str) -> Source:
    """Check an address and separate its keys. An absolute path becomes a `file://` address.

    Args:
        uri: the address.
        where: the field that contains the address, which error messages begin with.

    Raises:
        InvalidAddress: no scheme or an unknown one, no bucket, unescaped keys, or control characters.
    """
    if any(ord(char) < 32 for char in uri) or len(uri) > PATH_LENGTH:
        raise InvalidAddress(f"{where}: control characters or more than {PATH_LENGTH} characters")
    if uri.startswith("/"):
        uri = f"file://{uri}"
    scheme, found, rest = uri.partition("://")
    if not found:
        raise InvalidAddress(f"{where}: name the store first, as in s3://BUCKET.ENDPOINT/PREFIX")
    if scheme.lower() not in SOURCE_SCHEMES:
        known, shown = ", ".join(SOURCE_SCHEMES), repr(scheme) if scheme.isalnum() else "before '://'"
        raise InvalidAddress(f"{where}: unknown store {shown}; known are {known}")
    return _without_keys(scheme.lower(), rest, where)


def local_path(uri: str, where: str) -> str | None:
    """The normalized directory of a `file://` address, None for every other store.

    Raises:
        InvalidAddress: the address names a host, is relative, or contains `..`, also if written as `%2e%2e`.
    """
    scheme, _, rest = uri.partition("://")
    if scheme != "file":
        return None
    # The client decodes the address, so the decoded path is checked.
    parts = [part for part in unquote(rest).split("/") if part not in ("", ".")]
    if not rest.startswith("/") or ".." in parts or any(ord(char) < 32 for char in unquote(rest)):
        raise InvalidAddress(f"{where}: must be file:///DIRECTORY, absolute and without '..'")
    return "/" + "/".join(parts)


def _without_keys(scheme: str, rest: str, where: str) -> Source:
    authority, slash, path = rest.partition("/")
    userinfo, at, host = authority.rpartition("@")
    if not host and scheme != "file":
        raise InvalidAddress(f"{where}: a bucket or host must follow {scheme}://")
    if scheme != "file" and _has_other_than_ports(host):
        raise InvalidAddress(
            f"{where}: the text after ':' is not a port; write '/' in keys as %2F, '?' as %3F"
        )
    uri = f"{scheme}://{host}{slash}{path}"
    if not at:
        return Source(uri)
    access, _, secret = userinfo.partition(":")
    return Source(uri, Credentials(unquote(access), unquote(secret)))


def _has_other_than_ports(hosts: str) -> bool:
    """Whether text other than a port follows a ':'.

    This happens when a key contains an unescaped '/', which ends the part of the address that may have keys.

    Args:
        hosts: one or more hosts joined by commas; with parameters, if the address has no path.
    """
    parts = re.split("[?#]", hosts)[0].split(",")
    ports = (part.rpartition("]")[2].partition(":")[1:] for part in parts)
    return any(colon and not (port.isascii() and port.isdigit()) for colon, port in ports)
