"""Addresses of the volume and of sources; secrets are in the environment, not among the arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from cache_runtime.domain.model import Credentials
from cache_runtime.domain.paths import relative_path
from cache_runtime.engines.juicefs.command import Command
from paddlewheel.contracts.crds.options import SOURCE_SCHEMES
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.contracts.stores import InvalidStore, check_parameters
from paddlewheel.core.errors import Permanent

SET = "pwset"
"""Name under which `juicefs sync` finds the set's metadata URL: `jfs://pwset/`."""

_METAURL = re.compile(r"(?P<head>[a-z0-9+]+://)(?:(?P<user>[^:@/]*)(?::(?P<password>.*))?@)?(?P<rest>[^@]*)")


_S3 = (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"))
_VARIABLES = {
    "s3": _S3,
    "minio": _S3,
    "bos": (("BDCLOUD_ACCESS_KEY", "BDCLOUD_SECRET_KEY"),),
    "oss": (("ALICLOUD_ACCESS_KEY_ID", "ALICLOUD_ACCESS_KEY_SECRET"),),
    "cos": (("COS_SECRETID", "COS_SECRETKEY"),),
    "obs": (("HWCLOUD_ACCESS_KEY", "HWCLOUD_SECRET_KEY"),),
    "scw": (("SCW_ACCESS_KEY", "SCW_SECRET_KEY"),),
    "eos": (("EOS_ACCESS_KEY", "EOS_SECRET_KEY"),),
}
"""By these the client of a store reads its keys when the address has none."""
_NEEDS_KEYS = {"minio": "MinIO", "oss": "OSS"}
"""Their clients read no public bucket; that of OSS would take the role of the node."""


@dataclass(frozen=True)
class EngineSecret:
    """The volume as the engine secret describes it."""

    name: str
    storage: str
    bucket: str
    metaurl: str = field(repr=False)
    keys: Credentials = field(default_factory=Credentials)


@dataclass(frozen=True)
class MetaUrl:
    """A metadata URL, and its password in META_PASSWORD where the client of the database reads it there."""

    url: str = field(repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


def split_metaurl(metaurl: str) -> MetaUrl:
    """Take the password out of a metadata URL.

    That of etcd is read in the address only. The client puts asterisks in its place among its arguments, as
    soon as it runs.
    """
    match = _METAURL.fullmatch(metaurl)
    if not match or not match["password"]:
        return MetaUrl(metaurl)
    if match["head"] == "etcd://":
        password = quote(unquote(match["password"]), safe="")
        return MetaUrl(f"etcd://{match['user']}:{password}@{match['rest']}")
    user = f"{match['user']}@" if match["user"] else ""
    password = unquote(match["password"]) if match["head"].startswith("redis") else match["password"]
    if match["head"].startswith(("mysql", "postgres")):
        user = f"{match['user']}:@"
    return MetaUrl(f"{match['head']}{user}{match['rest']}", {"META_PASSWORD": password})


def source_url(sync: SyncOperation, keys: Credentials, local: str | None = None) -> Command:
    """The source as an argument, always a directory.

    Args:
        local: where a source of scheme `file` is read; without it there is none.

    Keys are passed in the environment where the store's client reads them there: of the arguments, every
    process of the node can read them. Of other stores JuiceFS accepts them in the address only.

    Raises:
        Permanent: `InvalidSource`; credentials in the URI itself, or a store that is none.
    """
    if local is not None:
        return Command((f"file://{quote(local.rstrip('/'))}/",))
    scheme, sep, rest = sync.source.partition("://")
    if not sep or not rest or "@" in rest.split("/", 1)[0]:
        raise Permanent("InvalidSource", "source.uri: must be NAME://BUCKET[.ENDPOINT][/PREFIX] without keys")
    if scheme not in SOURCE_SCHEMES or scheme == "file":
        raise Permanent("InvalidSource", f"source.uri: {scheme[:40]!r} is no store that can be synced from")
    try:
        check_parameters(sync.source, "source.uri")
    except InvalidStore as error:
        raise Permanent("InvalidSource", str(error)) from error
    path = f"{rest.rstrip('/')}/"
    if not keys.access_key:
        return Command((_without_keys(scheme, path),))
    found = _environment(scheme, keys)
    if found is None:
        user = f"{quote(keys.access_key, safe='')}:{quote(keys.secret_key, safe='')}"
        return Command((f"{scheme}://{user}@{path}",))
    return Command((f"{scheme}://{path}",), found)


def _environment(scheme: str, keys: Credentials) -> Mapping[str, str] | None:
    """None when the client of the store does not look there, or would use what is there for the volume, too:
    that of Azure takes `AZURE_STORAGE_CONNECTION_STRING` before the keys of any address."""
    if scheme in _VARIABLES:
        access = {variable: keys.access_key for variable, _ in _VARIABLES[scheme]}
        return {**access, **{variable: keys.secret_key for _, variable in _VARIABLES[scheme]}}
    if scheme == "gs":
        return {}  # it asks the node for its role, or a key file
    return None


def _without_keys(scheme: str, path: str) -> str:
    """A secret without keys means a public bucket. Without a name, the client of S3 would take the role of
    the node, with which the author of a data set could read what only the node may."""
    if store := _NEEDS_KEYS.get(scheme):
        raise Permanent(
            "CredentialsMissing", f"source: {store} needs access-key and secret-key in the source secret"
        )
    return f"s3://anonymous:@{path}" if scheme == "s3" else f"{scheme}://{path}"


def target_url(engine: EngineSecret, sub_dir: str, destination: str) -> Command:
    """The destination, addressed in the volume itself: without FUSE, and out of reach of symbolic links."""
    parts = [
        relative_path(sub_dir.strip("/"), "sub-dir"),
        relative_path(destination, "syncOptions.destination"),
    ]
    path = "/".join(filter(None, parts))
    meta = split_metaurl(engine.metaurl)
    address = f"jfs://{SET}/{quote(path)}/" if path else f"jfs://{SET}/"
    return Command((address,), {SET: meta.url, **meta.env})
