"""The options of a SampleJob, validated and turned into the operation of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.names import Reason
from dataset_controller.domain.paths import all_inside, cache_directory, inside
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds.operations import Operation
from paddlewheel.contracts.crds.parse import parse_options
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    SyncOperation,
    WarmupOperation,
)

Options = Mapping[str, Any]

SYNC_THREADS = 10
WARMUP_THREADS = 50
THREADS_MAX = 1024
BANDWIDTH_MAX = 10_000_000
STRATEGIES = ("sequence", "random")
WITHOUT_EFFECT = ("manager", "worker", "http-port")
"""Options of the original's spreading over SSH: accepted, unused; the runtime spreads the work itself."""


def sync_operation(options: Options, source: str, field: str = "syncOptions") -> SyncOperation:
    """Options of a sync; `source` is the checked address without keys. `secret` is left for the caller.

    Raises:
        Invalid: a value out of range or of the wrong kind, named by its field.
    """
    return SyncOperation(
        source=source,
        destination=inside(_text(options, "destination", field), f"{field}.destination"),
        threads=_number(options, "threads", field, SYNC_THREADS, 1, THREADS_MAX),
        bandwidth_limit=max(0, _number(options, "bwlimit", field, 0, -BANDWIDTH_MAX, BANDWIDTH_MAX)),
        include=_patterns(options, "include", field),
        exclude=_patterns(options, "exclude", field),
        update=_flag(options, "update", field),
        force_update=_flag(options, "force-update", field),
        perms=_flag(options, "perms", field),
        dirs=_flag(options, "dirs", field),
        dry=_flag(options, "dry", field),
        delete_src=_flag(options, "delete-src", field),
        delete_dst=_flag(options, "delete-dst", field),
        no_https=_flag(options, "no-https", field),
        start=_text(options, "start", field),
        end=_text(options, "end", field),
    )


def unused_sync_options(options: Options) -> list[str]:
    """Names of the options given that have no effect."""
    return [name for name in WITHOUT_EFFECT if options.get(name)]


def warmup_operation(options: Options, field: str = "warmupOptions") -> WarmupOperation:
    """Options of a warmup; `partitions` is always the set's own. No paths, or the root, mean the whole set.

    Raises:
        Invalid: as `sync_operation`.
    """
    paths = all_inside(_list(options, "paths", field), f"{field}.paths")
    strategy = _text(options, "strategyName", field) or STRATEGIES[0]
    if strategy not in STRATEGIES:
        raise _wrong(f"{field}.strategyName", strategy, f"one of {', '.join(STRATEGIES)}")
    return WarmupOperation(
        paths=[] if "" in paths else paths,
        strategy=strategy,
        file=inside(_text(options, "file", field), f"{field}.file"),
        threads=_number(options, "threads", field, WARMUP_THREADS, 1, THREADS_MAX),
    )


def remove_operation(options: Options, field: str = "rmrOptions") -> RemoveOperation:
    """Paths to remove, at least one, none of them the root.

    Raises:
        Invalid: as `sync_operation`.
    """
    paths = all_inside(_list(options, "paths", field), f"{field}.paths")
    if not paths:
        raise Invalid(Reason.SPEC_INVALID, f"{field}.paths: name at least one path to remove")
    if "" in paths:
        raise Invalid(
            Reason.SPEC_INVALID,
            f"{field}.paths[{paths.index('')}]: is the whole data set; name what lies below",
        )
    return RemoveOperation(paths=paths)


def clear_operation(
    options: Options, cache_dirs: Sequence[str], field: str = "clearOptions"
) -> ClearOperation:
    """Cache directories to empty: host paths of the set, or the mount paths the original gave them.

    Raises:
        Invalid: a path that is no cache directory of the set.
    """
    known = {directory: directory for directory in cache_dirs}
    for directory in cache_dirs:
        volume = directory.replace("/", "-")
        known |= {f"/cache/{volume}": directory, f"/cache/{volume.lstrip('-')}": directory}
    paths = [
        _known_cache(path, known, f"{field}.paths[{i}]")
        for i, path in enumerate(_list(options, "paths", field))
    ]
    return ClearOperation(paths=paths)


def plain_operation(row: Operation, options: Options) -> WireModel:
    """An operation whose options have the same names and meaning on the bus.

    Raises:
        Invalid: as `sync_operation`.
    """
    try:
        read = parse_options(row, options)
    except ValueError as error:
        raise Invalid(Reason.SPEC_INVALID, f"spec.{error}") from error
    shared = row.options.model_fields.keys() & row.model.model_fields.keys()
    return row.model.model_validate({name: getattr(read, name) for name in shared})


def _known_cache(path: str, known: Mapping[str, str], field: str) -> str:
    if (directory := known.get(path.rstrip("/"))) is not None:
        return directory
    clean = cache_directory(path, field)
    if clean not in known:
        raise Invalid(
            Reason.SPEC_INVALID,
            f"{field}: {path!r} is no cache of this set; its caches are {', '.join(known)}",
        )
    return known[clean]


def _text(options: Options, name: str, field: str) -> str:
    value = options.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise _wrong(f"{field}.{name}", value, "a text")
    return value


def _patterns(options: Options, name: str, field: str) -> list[str]:
    """One pattern as in the contract, or a list of them."""
    if isinstance(options.get(name), str):
        return [options[name]] if options[name] else []
    return _list(options, name, field)


def _list(options: Options, name: str, field: str) -> list[str]:
    value = options.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(f"{field}.{name}", value, "a list of texts")
    return value


def _flag(options: Options, name: str, field: str) -> bool:
    value = options.get(name, False)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _wrong(f"{field}.{name}", value, "true or false")
    return value


def _number(options: Options, name: str, field: str, default: int, least: int, most: int) -> int:
    """0 or absent means the default, as in the original."""
    value = options.get(name)
    if value is None or value == 0:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _wrong(f"{field}.{name}", value, f"a whole number from {least} to {most}")
    return value


def _wrong(field: str, value: object, wanted: str) -> Invalid:
    shown = repr(value)
    return Invalid(Reason.SPEC_INVALID, f"{field}: {shown[:80]} is not {wanted}")
