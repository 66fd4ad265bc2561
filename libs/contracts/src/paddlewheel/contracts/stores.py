"""The metadata engines, object stores and parameters of their addresses that a Secret may contain.

The client that opens these addresses runs privileged, and many addresses can name files of the node: a
database on disk, a store in a directory, a socket, certificates, `allowAllFiles` of MySQL. So only listed
ones are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from paddlewheel.contracts.crds.options import SOURCE_SCHEMES

STORES = (*(scheme for scheme in SOURCE_SCHEMES if scheme != "file"), "tos", "sftp")
"""Object stores that can hold a volume's data. `file` is not one of them: several nodes share a data set."""
META_ENGINES = ("redis", "rediss", "mysql", "postgres", "tikv", "etcd")
_PARAMETERS = """
    min-retry-backoff max-retry-backoff max-retries read-timeout write-timeout route-read
    insecure-skip-verify tls-server-name server-name verify-cn gc-interval tls-insecure-skip-verify
    charset collation timeout readTimeout writeTimeout tls sslmode search_path connect_timeout
    application_name max_open_conns max_idle_conns max_idle_time max_life_time
"""
PARAMETERS = frozenset(_PARAMETERS.split())
"""Allowed parameters of addresses. None of them names a file."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_META = re.compile(
    r"(?P<scheme>[a-z]+)://(?:(?P<user>[^:@/?#\s]*)(?::(?P<password>[^\s]*))?@)?"
    r"(?P<host>[\w.,:\[\]-]+|(?:tcp)?\([\w.,:\[\]-]+\))(?P<path>/[^?#\s@()]*)?"
    r"(?:\?(?P<query>[^#\s@/?()]*))?"
)
_BUCKET = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9]*)://)?(?!\w*://)(?:[^/?#\s]*@)?[\w(\[][^?#\s\\@]*(?:\?(?P<query>[^#\s]*))?"
)
_BUCKET_SCHEMES = frozenset({"http", "https", "rediss", *STORES})


class InvalidStore(ValueError):  # noqa: N818 - a verdict on input, not a failure
    """An entry of the Secret is invalid. The message names its key and what to do, and contains no secret
    value."""


def check_engine(values: Mapping[str, str]) -> None:
    """Check `name`, `storage`, `bucket` and `metaurl` of an engine Secret.

    Raises:
        InvalidStore: an entry is malformed, or contains an engine, store or parameter that is not allowed.
    """
    if not _NAME.fullmatch(values["name"]):
        raise InvalidStore("name: must be 3 to 63 of a-z, 0-9 and '-', as JuiceFS names volumes")
    check_store(values["storage"], values["bucket"])
    check_metaurl(values["metaurl"])


def check_store(storage: str, bucket: str) -> None:
    """Check the address of the store that holds a volume's data. Raises InvalidStore."""
    if storage.lower() not in STORES:
        known = ", ".join(STORES)
        raise InvalidStore(f"storage: {storage[:40]!r} is not one of {known}; name an object store")
    found = _BUCKET.fullmatch(bucket)
    if found is None or (found["scheme"] or "http") not in _BUCKET_SCHEMES:
        raise InvalidStore("bucket: must be NAME.ENDPOINT or http(s)://ENDPOINT/NAME, no path")
    _check_parameters("bucket", found["query"])


def check_metaurl(metaurl: str) -> None:
    """Check the address of a metadata engine. Raises InvalidStore."""
    found = _META.fullmatch(metaurl)
    is_cut = found is not None and found["scheme"] == "mysql" and not found["path"]
    # MySQL's driver splits the address at the last '/': without a database, that may be one in the password.
    if found is None or found["scheme"] not in META_ENGINES or is_cut:
        known = ", ".join(META_ENGINES)
        raise InvalidStore(
            f"metaurl: must be ENGINE://[USER:PASSWORD@]HOST[:PORT]/DATABASE with ENGINE one of {known};"
            " files and sockets of a node cannot be used"
        )
    if found["scheme"] == "postgres" and re.search("[/?#]", found["password"] or ""):
        # Postgres' driver would take the text after such a character for the host, or for parameters.
        raise InvalidStore("metaurl: write '/', '?' and '#' of the password as %2F, %3F and %23")
    _check_parameters("metaurl", found["query"])


def check_parameters(uri: str, where: str) -> None:
    """Check the parameters of a source that is a database. Raises InvalidStore."""
    if uri.startswith(("redis://", "tikv://")):
        _check_parameters(where, uri.partition("?")[2])


def _check_parameters(where: str, query: str | None) -> None:
    if "@" in (query or ""):
        # The text may be the end of a password, so the message does not contain it.
        raise InvalidStore(f"{where}: write '?' and '@' of a password as %3F and %40")
    names = [name for name, _ in parse_qsl(query or "", keep_blank_values=True)]
    unknown = sorted(set(names) - PARAMETERS)
    if unknown or (query and (not names or ";" in query)):
        shown = ", ".join(name[:40] for name in unknown) or "unreadable"
        raise InvalidStore(
            f"{where}: parameter {shown} is not allowed; leave it out (allowed:"
            f" {', '.join(sorted(PARAMETERS))})"
        )
