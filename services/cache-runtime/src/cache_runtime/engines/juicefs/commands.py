"""Command lines of the JuiceFS client. Secrets are in the environment where the client reads them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from cache_runtime.engines.juicefs.addresses import EngineSecret, split_metaurl
from cache_runtime.engines.juicefs.command import Command
from cache_runtime.engines.juicefs.mount_options import mount_options
from paddlewheel.contracts.generated.cache_v1 import SyncOperation

_NOTHING_ELSE = ("--include", "*/", "--exclude", "*")
"""Follows includes that stand alone, which the client would ignore. A directory that is excluded would hide
what is included in it."""
_HIGHEST = b"\xff" * 4
NOTHING_BELOW = "--end=\x01"
"""The client takes a line of a list for a prefix when nobody answers for its key, or it is a directory. It
lists what is there up to this key: nothing."""


@dataclass(frozen=True)
class Copying:
    """What one copy is told beside its options.

    Args:
        log_id: begins each line of its log.
        mbps: bandwidth limit in Mbit per second, 0 = none; the client knows whole numbers only.
    """

    log_id: str
    mbps: int = 0


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
        Permanent: as `mount_options`.
    """
    meta = split_metaurl(engine.metaurl)
    args = ["mount", "--no-usage-report", "--cache-dir", ":".join(cache_dirs), "--cache-size", str(cache_mib)]
    # The database may name another kind of store later, such as a directory of this pod.
    args.append(f"--storage={engine.storage}")
    args += mount_options({"metrics": "127.0.0.1:0", **options})
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
        *_filters(sync, source),
    )
    return _confined((*args, *_common(sync), *source.args, f"file://{quote(empty_dir)}/"), source)


def list_files(
    sync: SyncOperation, target: Command, selection: Sequence[str], empty_dir: str, log_id: str
) -> Command:
    """Log the files of the destination that are selected; nothing is copied."""
    args = ("--verbose", "--log-id", log_id, "sync", "--dry", "--force-update", *selection, *_threads(sync))
    return _confined((*args, *_common(sync), *target.args, f"file://{quote(empty_dir)}/"), target)


def copy_files(
    sync: SyncOperation, source: Command, target: Command, selection: tuple[str, ...], copying: Copying
) -> Command:
    """Copy a selection (`--files-from F`, or `--start=K --end=K`) of the source's objects.

    No filters: what they leave out was not listed.

    A large object is read in parts, which may be of different versions: what changes meanwhile is a failure.

    What leaves the source meanwhile is told in the verbose log only, which takes time. Where the size
    decides, nothing false is said without it: the file is missing, has another size, or is kept as it is.
    """
    args = ["--verbose"] if sync.update or sync.force_update else []
    args += ["--log-id", copying.log_id, "sync", *selection, "--check-change", *_how(sync, copying.mbps)]
    args += ["--force-update"] if sync.force_update else []
    return _confined((*args, *_common(sync), *source.args, *target.args), source, target)


def delete_extra(sync: SyncOperation, source: Command, target: Command, log_id: str) -> Command:
    """Delete what only the destination has. Nothing is copied: neither what is new nor what differs."""
    args = (
        "--log-id",
        log_id,
        "sync",
        *_filters(sync, source),
        "--existing",
        "--ignore-existing",
        "--delete-dst",
        *_threads(sync),
    )
    return _confined((*args, *_common(sync), *source.args, *target.args), source, target)


def delete_copied(sync: SyncOperation, source: Command, target: Command, copying: Copying) -> Command:
    """Delete what the source and the destination both have, after comparing the contents.

    What differs is copied, and stays in the source; what the destination lacks stays, too. What changes while
    it is copied is a failure here as well.
    """
    args = ["--log-id", copying.log_id, "sync", *_filters(sync, source)]
    args += ["--existing", "--check-all", "--check-change", "--delete-src", *_how(sync, copying.mbps)]
    return _confined((*args, *_common(sync), *source.args, *target.args), source, target)


def _confined(args: tuple[str, ...], *addresses: Command) -> Command:
    """What authors of data sets write says where these read and write."""
    env = {name: value for address in addresses for name, value in address.env.items()}
    return Command(args, env, is_confined=True)


def _how(sync: SyncOperation, mbps: int) -> list[str]:
    """The limits and rules of whatever copies."""
    args = ["--update"] if sync.update else []
    args += ["--perms"] if sync.perms else []
    args += [f"--bwlimit={mbps}"] if mbps else []
    return [*args, *_threads(sync)]


def _threads(sync: SyncOperation) -> list[str]:
    return ["--threads", str(max(1, sync.threads or 10))]


def between(start: str, end: str, source: Command) -> list[str]:
    """Arguments for the keys from `start` to `end`, with these two themselves; "" = no limit.

    The client lists both of them in an object store. In a directory of the node and in a volume it lists the
    keys between the two, so there the limits are moved.
    """
    if source.args[-1].startswith(("file://", "jfs://")):
        start, end = _before(start) if start else "", _after(end) if end else ""
    return [*([f"--start={start}"] if start else []), *([f"--end={end}"] if end else [])]


def _before(key: str) -> str:
    """No file has a name between the two: no UTF-8 has these bytes, and no argument a NUL."""
    *head, last = key.encode("utf-8", "surrogateescape")
    return (bytes(head) if last == 1 else bytes([*head, last - 1, *_HIGHEST])).decode(
        "utf-8", "surrogateescape"
    )


def _after(key: str) -> str:
    return f"{key}\x01"


def _filters(sync: SyncOperation, source: Command) -> list[str]:
    """Includes go first, for the first pattern that matches counts."""
    args = [arg for pattern in sync.include for arg in _filter("--include", pattern)]
    args += [arg for pattern in sync.exclude for arg in _filter("--exclude", pattern)]
    args += _NOTHING_ELSE if sync.include and not sync.exclude else ()
    return [*args, *between(sync.start, sync.end, source), *(["--dirs"] if sync.dirs else [])]


def _filter(option: str, pattern: str) -> tuple[str, ...]:
    """As one argument the client would ignore a pattern that contains `=`; as two, it would take one that
    begins with `-` for an option."""
    if pattern.startswith("-"):
        pattern = rf"[\-]{pattern[1:]}"
    return (option, pattern)


def _common(sync: SyncOperation) -> list[str]:
    return ["--metrics", "127.0.0.1:0", *(["--no-https"] if sync.no_https else [])]


def remove(paths: list[str], log_id: str) -> Command:
    """Remove absolute paths recursively."""
    return Command((f"--log-id={log_id}", "rmr", *paths))


def is_line_safe(key: bytes) -> bool:
    """Whether a line of `--files-from` can hold this key: the client splits at newlines, and trims all that
    Unicode calls white space."""
    text = key.decode(errors="surrogateescape")
    return text == text.strip() and not any(c in key for c in b"\n\r\v\f") and not key.endswith(b"/")
