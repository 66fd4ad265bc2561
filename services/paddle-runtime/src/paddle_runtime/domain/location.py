"""The location of a model's files: a directory of this machine, or a prefix of a bucket that speaks S3."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import unquote

from paddle_runtime.domain.files import ModelFault
from paddlewheel.contracts.addresses import InvalidAddress, parse_address

FIELD = "PADDLE_RUNTIME_MODEL_URI"


@dataclass(frozen=True)
class Directory:
    """An absolute path."""

    path: str


@dataclass(frozen=True)
class Bucket:
    """`endpoint` is "" for Amazon's own, else a URL; `prefix` is "" or ends with a slash."""

    name: str
    prefix: str
    endpoint: str


def locate(uri: str, endpoint: str = "") -> Directory | Bucket:
    """Parse the address of a model, written like the source of a SampleSet.

    Args:
        endpoint: URL of the store where the address alone does not tell, e.g. an S3 store without TLS.

    Raises:
        ModelFault: `InvalidUri`; explains what to do, and never contains keys.
    """
    try:
        source = parse_address(uri, FIELD)
    except InvalidAddress as error:
        raise ModelFault("InvalidUri", str(error)) from None
    if source.keys:
        remedy = "must not contain keys: set PADDLE_RUNTIME_STORE_ACCESS_KEY and _SECRET_KEY from a Secret"
        raise ModelFault("InvalidUri", f"{FIELD}: {remedy}")
    scheme, _, rest = source.uri.partition("://")
    host, _, path = rest.partition("/")
    if scheme == "file":
        return Directory(f"/{path}".rstrip("/") or "/")
    if scheme not in ("s3", "minio"):
        remedy = "use s3:// or minio://, or mount the data and give its path"
        raise ModelFault("InvalidUri", f"{FIELD}: models cannot be fetched from {scheme}://; {remedy}")
    return _bucket(scheme, host, unquote(path), endpoint)


def _bucket(scheme: str, host: str, path: str, endpoint: str) -> Bucket:
    if scheme == "minio" or _is_address(host):
        name, _, prefix = path.partition("/")
        found = f"http://{host}"
    else:
        name, _, domain = host.partition(".")
        prefix, found = path, f"https://{domain}" if domain else ""
    if not name:
        raise ModelFault(
            "InvalidUri", f"{FIELD}: a bucket must follow the host, as in minio://HOST/BUCKET/PREFIX"
        )
    return Bucket(name, f"{prefix.strip('/')}/" if prefix.strip("/") else "", endpoint or found)


def _is_address(host: str) -> bool:
    """An IP address or localhost has no bucket as its first label."""
    bare = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and ":" in host else host
    try:
        ipaddress.ip_address(bare.strip("[]"))
    except ValueError:
        return bare == "localhost"
    return True
