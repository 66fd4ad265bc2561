"""Command lines of the JuiceFS client. Secrets are in the environment where the client reads them there."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from cache_runtime.engines.juicefs.addresses import EngineSecret, split_metaurl
from cache_runtime.engines.juicefs.command import Command
from cache_runtime.engines.juicefs.mount_options import mount_option
from paddlewheel.contracts.generated.cache_v1 import SyncOperation


def status(engine: EngineSecret) -> Command:
    """Prints JSON, or fails with `not formatted`."""
    meta = split_metaurl(engine.metaurl)
    return Command(("status", meta.url), meta.env)


def format_volume(engine: EngineSecret) -> Command:
    """Format the volume; no effect on an existing one."""
    meta = split_metaurl(engine.metaurl)
    keys = {"ACCESS_KEY": engine.keys.access_key, "SECRET_KEY": engine.keys.secret_key}
    args = (
        "format",
        "--no-update",
        f"--storage={engine.storage}",
        f"--bucket={engine.bucket}",
        meta.url,
        engine.name,
    )
    return Command(args, {**meta.env, **{name: value for name, value in keys.items() if value}})


def mount(
    engine: EngineSecret, path: str, cache_dirs: list[str], cache_mib: int, options: Mapping[str, str]
) -> Command:
    """Mount in the foreground.

    Raises:
        Permanent: an unknown option.
    """
    meta = split_metaurl(engine.metaurl)
    args = ["mount", "--no-usage-report", "--cache-dir", ":".join(cache_dirs), "--cache-size", str(cache_mib)]
    # The database may name another kind of store later, such as a directory of this pod.
    args.append(f"--storage={engine.storage}")
    chosen = {"metrics": "127.0.0.1:0", **options}
    for name in sorted(chosen):
        args += mount_option(name, chosen[name])
    return Command((*args, meta.url, path), meta.env)


def list_source(sync: SyncOperation, source: Command, empty_dir: str, log_id: str) -> Command:
    """Log every object of the source that passes the filters; nothing is copied."""
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
    return _confined((*args, *_common(sync), *source.args, f"file://{quote(empty_dir)}/"), source)


def copy_files(
    sync: SyncOperation, source: Command, target: Command, selection: tuple[str, ...], mbps: float
) -> Command:
    """Copy a selection (`--files-from F`, or `--start=K --end=K`) of the source's objects."""
    args = ["sync", *selection, "--threads", str(max(1, sync.threads or 10))]
    args += ["--update"] if sync.update else []
    args += ["--force-update"] if sync.force_update else []
    args += ["--perms"] if sync.perms else []
    args += [f"--bwlimit={mbps:.3f}"] if mbps else []
    return _confined((*args, *_common(sync), *source.args, *target.args), source, target)


def delete_extra(sync: SyncOperation, source: Command, target: Command) -> Command:
    """After everything is copied: delete extra objects of the destination, or copied ones of the source."""
    args = ["sync", *_filters(sync), *_common(sync)]
    args += ["--delete-src"] if sync.delete_src else []
    args += ["--delete-dst"] if sync.delete_dst else []
    return _confined((*args, *source.args, *target.args), source, target)


def _confined(args: tuple[str, ...], *addresses: Command) -> Command:
    """What authors of data sets write says where these read and write."""
    env = {name: value for address in addresses for name, value in address.env.items()}
    return Command(args, env, is_confined=True)


def _filters(sync: SyncOperation) -> list[str]:
    args = [f"--exclude={pattern}" for pattern in sync.exclude]
    args += [f"--include={pattern}" for pattern in sync.include]
    args += [f"--start={sync.start}"] if sync.start else []
    args += [f"--end={sync.end}"] if sync.end else []
    return args + (["--dirs"] if sync.dirs else [])


def _common(sync: SyncOperation) -> list[str]:
    return ["--metrics", "127.0.0.1:0", *(["--no-https"] if sync.no_https else [])]


def remove(paths: list[str]) -> Command:
    """Remove absolute paths recursively."""
    return Command(("rmr", *paths))


def is_line_safe(key: bytes) -> bool:
    """Whether a line of `--files-from` can hold this key: lines are trimmed, and split at newlines."""
    return key == key.strip() and not any(c in key for c in b"\n\r\v\f") and not key.endswith(b"/")
