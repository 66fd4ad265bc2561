"""Command lines and environments of the JuiceFS client. Secrets go by environment wherever it reads one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from cache_runtime.domain.paths import relative_path
from paddlewheel.contracts.generated.cache_v1 import SyncOperation
from paddlewheel.core.errors import Permanent

SET = "pwset"
"""Name under which `juicefs sync` finds the set's metadata URL: `jfs://pwset/`."""

_VALUE_OPTIONS = """
    attr-cache entry-cache dir-entry-cache negative-entry-cache get-timeout put-timeout io-retries max-uploads
    max-downloads max-deletes upload-limit download-limit buffer-size prefetch max-readahead free-space-ratio
    open-cache metrics backup-meta heartbeat cache-items cache-eviction cache-scan-interval cache-expire
    verify-cache-checksum atime-mode storage-class cache-mode
"""
_VALUES = frozenset(_VALUE_OPTIONS.split())
_FLAG_OPTIONS = """
    enable-xattr writeback cache-partial-only cache-large-write read-only no-bgjob sort-dir fast-statfs
"""
_FLAGS = frozenset(_FLAG_OPTIONS.split())
_ALIASES = {"sub-dir": "subdir", "subdir": "subdir"}
_DECIDED = frozenset({"cache-dir", "cache-size"})
"""Options that the set's cache levels decide, not the mount options."""

_METAURL = re.compile(r"(?P<head>[a-z0-9+]+://)(?:(?P<user>[^:@/]*)(?::(?P<password>.*))?@)?(?P<rest>[^@]*)")


@dataclass(frozen=True)
class Command:
    """Arguments after the program's name, and environment variables to add."""

    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Command({' '.join(self.args[:3])} ...)"


@dataclass(frozen=True)
class Credentials:
    """Keys of an object store; "" = none."""

    access_key: str = ""
    secret_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Engine:
    """The volume, as the engine secret describes it."""

    name: str
    storage: str
    bucket: str
    metaurl: str = field(repr=False)
    keys: Credentials = Credentials()


@dataclass(frozen=True)
class MetaUrl:
    """A metadata URL without its password, which goes by META_PASSWORD."""

    url: str
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


def split_metaurl(metaurl: str) -> MetaUrl:
    """Take the password out of a metadata URL."""
    match = _METAURL.fullmatch(metaurl)
    if not match or not match["password"]:
        return MetaUrl(metaurl)
    user = f"{match['user']}@" if match["user"] else ""
    password = unquote(match["password"]) if match["head"].startswith("redis") else match["password"]
    if match["head"].startswith(("mysql", "postgres")):
        user = f"{match['user']}:@"
    return MetaUrl(f"{match['head']}{user}{match['rest']}", {"META_PASSWORD": password})


def status(engine: Engine) -> Command:
    """Answers with JSON, or fails with `not formatted`."""
    meta = split_metaurl(engine.metaurl)
    return Command(("status", meta.url), meta.env)


def format_volume(engine: Engine) -> Command:
    """Make the volume; harmless when it exists already."""
    meta = split_metaurl(engine.metaurl)
    keys = {"ACCESS_KEY": engine.keys.access_key, "SECRET_KEY": engine.keys.secret_key}
    args = (
        "format",
        "--no-update",
        "--storage",
        engine.storage,
        "--bucket",
        engine.bucket,
        meta.url,
        engine.name,
    )
    return Command(args, {**meta.env, **{name: value for name, value in keys.items() if value}})


def mount(
    engine: Engine, path: str, cache_dirs: list[str], cache_mib: int, options: Mapping[str, str]
) -> Command:
    """Mount in the foreground.

    Raises:
        Permanent: an option that is not known or not wanted.
    """
    meta = split_metaurl(engine.metaurl)
    args = ["mount", "--no-usage-report", "--cache-dir", ":".join(cache_dirs), "--cache-size", str(cache_mib)]
    chosen = {"metrics": "127.0.0.1:0", **options}
    for name in sorted(chosen):
        args += _mount_option(name, chosen[name])
    return Command((*args, meta.url, path), meta.env)


def _mount_option(name: str, value: str) -> list[str]:
    option = _ALIASES.get(name, name)
    if option in _DECIDED:
        return []
    if option in _FLAGS:
        return [f"--{option}"] if value.lower() in ("", "true", "1") else []
    if option in _VALUES or option in _ALIASES.values():
        return [f"--{option}={value}"]
    raise Permanent("InvalidMountOption", f"csi.juiceFSMountOptions: {name!r} is not a JuiceFS mount option")


def list_source(sync: SyncOperation, source: Command, empty_dir: str, log_id: str) -> Command:
    """Log every object of the source that the filters let through; nothing is copied."""
    args = (
        "--verbose",
        "--log-id",
        log_id,
        "sync",
        "--dry",
        "--force-update",
        "--threads",
        "1",
        *_filters(sync),
    )
    return Command((*args, *_common(sync), *source.args, f"file://{quote(empty_dir)}/"), source.env)


def copy_files(
    sync: SyncOperation, source: Command, target: Command, selection: tuple[str, ...], mbps: float
) -> Command:
    """Copy a selection (`--files-from F`, or `--start=K --end=K`) of the source's objects."""
    args = ["sync", *selection, "--threads", str(max(1, sync.threads or 10))]
    args += ["--update"] if sync.update else []
    args += ["--force-update"] if sync.force_update else []
    args += ["--perms"] if sync.perms else []
    args += [f"--bwlimit={mbps:.3f}"] if mbps else []
    return Command((*args, *_common(sync), *source.args, *target.args), {**source.env, **target.env})


def finish_sync(sync: SyncOperation, source: Command, target: Command) -> Command:
    """After all is copied: delete what the destination has too much, or what the source may lose."""
    args = ["sync", *_filters(sync), *_common(sync)]
    args += ["--delete-src"] if sync.delete_src else []
    args += ["--delete-dst"] if sync.delete_dst else []
    return Command((*args, *source.args, *target.args), {**source.env, **target.env})


def _filters(sync: SyncOperation) -> list[str]:
    args = [f"--exclude={pattern}" for pattern in sync.exclude]
    args += [f"--include={pattern}" for pattern in sync.include]
    args += [f"--start={sync.start}"] if sync.start else []
    args += [f"--end={sync.end}"] if sync.end else []
    return args + (["--dirs"] if sync.dirs else [])


def _common(sync: SyncOperation) -> list[str]:
    return ["--metrics", "127.0.0.1:0", *(["--no-https"] if sync.no_https else [])]


def source_url(sync: SyncOperation, keys: Credentials) -> Command:
    """The source as an argument, always a directory. Keys go by environment for S3 and MinIO, whose clients
    read them there; for other stores JuiceFS takes them in the URL only.

    Raises:
        Permanent: `InvalidSource`; credentials in the URI itself.
    """
    scheme, sep, rest = sync.source.partition("://")
    if not sep or not rest or "@" in rest.split("/", 1)[0]:
        raise Permanent("InvalidSource", "source.uri: want NAME://BUCKET[.ENDPOINT][/PREFIX] without keys")
    if sync.source.startswith("-"):
        raise Permanent("InvalidSource", "source.uri: must not begin with a dash")
    path = f"{rest.rstrip('/')}/"
    if not keys.access_key:
        return Command((_without_keys(sync, scheme, path),))
    if scheme in ("s3", "minio"):
        aws = {"AWS_ACCESS_KEY_ID": keys.access_key, "AWS_SECRET_ACCESS_KEY": keys.secret_key}
        minio = {"MINIO_ACCESS_KEY": keys.access_key, "MINIO_SECRET_KEY": keys.secret_key}
        return Command((f"{scheme}://{path}",), {**aws, **minio})
    user = f"{quote(keys.access_key, safe='')}:{quote(keys.secret_key, safe='')}"
    return Command((f"{scheme}://{user}@{path}",))


def _without_keys(sync: SyncOperation, scheme: str, path: str) -> str:
    """A secret without keys means a public bucket; no secret at all means the node's own role."""
    if scheme == "minio":
        raise Permanent(
            "CredentialsMissing", "source: MinIO needs access-key and secret-key in the source secret"
        )
    return f"s3://anonymous:@{path}" if scheme == "s3" and sync.secret else f"{scheme}://{path}"


def target_url(engine: Engine, sub_dir: str, destination: str) -> Command:
    """The destination in the volume itself: no FUSE between, and no symbolic link can lead out of it."""
    parts = [
        relative_path(sub_dir.strip("/"), "sub-dir"),
        relative_path(destination, "syncOptions.destination"),
    ]
    path = "/".join(filter(None, parts))
    return Command((f"jfs://{SET}/{quote(path)}/" if path else f"jfs://{SET}/",), {SET: engine.metaurl})


def remove(paths: list[str]) -> Command:
    """Remove absolute paths recursively."""
    return Command(("rmr", *paths))


def is_unformatted(stderr: str) -> bool:
    """Did `status` fail because there is no volume yet?"""
    return "not formatted" in stderr


_SECRET = re.compile(r"(://)[^/\s@]*@")


def last_problem(stderr: str) -> str:
    """The last ERROR or FATAL line for a person, without prefix and without user names or keys in URLs."""
    lines = [line for line in stderr.splitlines() if "<FATAL>: " in line or "<ERROR>: " in line]
    line = (lines or stderr.splitlines() or ["no output"])[-1]
    return _SECRET.sub(r"\1", line.partition(">: ")[2] or line)[:500]
