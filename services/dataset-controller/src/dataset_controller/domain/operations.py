"""The options of an operation, validated and turned into what a run's record contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.limits import BANDWIDTH_MAX, INT32_MAX, THREADS_MAX
from dataset_controller.domain.paths import CacheDirectory, all_inside, cache_directory, inside
from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.crds import (
    ClearOptions,
    Operation,
    RmrOptions,
    SyncOptions,
    WarmupOptions,
    admission_rules,
)
from paddlewheel.contracts.crds.base import CrdModel
from paddlewheel.contracts.crds.limits import STRATEGIES, SYNC_THREADS, WARMUP_THREADS
from paddlewheel.contracts.crds.operations import TWO_DELETIONS
from paddlewheel.contracts.generated.cache_v1 import (
    ClearOperation,
    RemoveOperation,
    SamplerOrder,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.contracts.reasons import Reason

WITHOUT_EFFECT = (*admission_rules.WITHOUT_EFFECT, "http_port")


def sync_operation(options: SyncOptions, source: str, field: str = "syncOptions") -> SyncOperation:
    """Options of a sync. `source` is the checked address without keys; `secret` is left to the caller.

    Raises:
        Invalid: a value that cannot work, named by its field.
    """
    if options.delete_src and options.delete_dst:
        raise Invalid(Reason.INVALID_SPEC, f"{field}: {TWO_DELETIONS}")
    return SyncOperation(
        source=source,
        destination=inside(options.destination, f"{field}.destination"),
        threads=_number(options.threads, f"{field}.threads", SYNC_THREADS, 1, THREADS_MAX),
        bandwidth_limit=_number(options.bwlimit, f"{field}.bwlimit", 0, 0, BANDWIDTH_MAX),
        include=[options.include] if options.include else [],
        exclude=[options.exclude] if options.exclude else [],
        update=options.update,
        force_update=options.force_update,
        perms=options.perms,
        dirs=options.dirs,
        dry=options.dry,
        delete_src=options.delete_src,
        delete_dst=options.delete_dst,
        no_https=options.no_https,
        start=_text(options.start, f"{field}.start"),
        end=_text(options.end, f"{field}.end"),
    )


def unused_sync_options(options: SyncOptions) -> list[str]:
    """Names of the given options that have no effect."""
    return [name.replace("_", "-") for name in WITHOUT_EFFECT if getattr(options, name)]


def warmup_operation(options: WarmupOptions, field: str = "warmupOptions") -> WarmupOperation:
    """Options of a warmup; `partitions` is always the set's own. No paths, or the root, mean the whole set.

    Raises:
        Invalid: as `sync_operation`.
    """
    paths = all_inside(options.paths, f"{field}.paths")
    strategy = options.strategy_name or STRATEGIES[0]
    if strategy not in STRATEGIES:
        raise _wrong(f"{field}.strategyName", strategy, f"one of {', '.join(STRATEGIES)}")
    return WarmupOperation(
        paths=[] if "" in paths else paths,
        strategy=strategy,
        file=inside(options.file, f"{field}.file"),
        threads=_number(options.threads, f"{field}.threads", WARMUP_THREADS, 1, THREADS_MAX),
        sampler=_sampler_order(options, field),
    )


def _sampler_order(options: WarmupOptions, field: str) -> SamplerOrder | None:
    if options.strategy_name != "sampler":
        return None
    if options.sampler is None:
        raise Invalid(Reason.INVALID_SPEC, f"{field}.sampler: strategyName sampler needs its batchSize")
    asked = options.sampler
    return SamplerOrder(
        batch_size=_number(asked.batch_size, f"{field}.sampler.batchSize", 1, 1, INT32_MAX),
        shuffle=asked.shuffle,
        epoch=_number(asked.epoch, f"{field}.sampler.epoch", 0, 0, INT32_MAX),
        extensions=list(asked.extensions),
    )


def remove_operation(options: RmrOptions, field: str = "rmrOptions") -> RemoveOperation:
    """Paths to remove, at least one, none of them the root.

    Raises:
        Invalid: as `sync_operation`.
    """
    paths = all_inside(options.paths, f"{field}.paths")
    if not paths:
        raise Invalid(Reason.INVALID_SPEC, f"{field}.paths: name at least one path to remove")
    if "" in paths:
        raise Invalid(
            Reason.INVALID_SPEC,
            f"{field}.paths[{paths.index('')}]: is the whole data set; name paths below its root",
        )
    return RemoveOperation(paths=paths)


def clear_operation(
    options: ClearOptions, directories: Sequence[CacheDirectory], field: str = "clearOptions"
) -> ClearOperation:
    """Cache directories to empty: host paths of the set, or the mount paths the original gave them.

    Raises:
        Invalid: a path that is no cache directory of the set.
    """
    known = {path: directory for directory in directories for path in (directory.named, directory.path)}
    for directory in directories:
        volume = directory.named.replace("/", "-")
        known |= {f"/cache/{volume}": directory, f"/cache/{volume.lstrip('-')}": directory}
    named = [_known_cache(path, known, f"{field}.paths[{i}]") for i, path in enumerate(options.paths)]
    return ClearOperation(paths=[path for directory in named for path in directory.paths])


def plain_operation(row: Operation, options: CrdModel) -> WireModel:
    """An operation whose options have the same names and meaning on the bus."""
    shared = row.options.model_fields.keys() & row.model.model_fields.keys()
    return row.model.model_validate({name: getattr(options, name) for name in shared})


def _known_cache(path: str, known: Mapping[str, CacheDirectory], field: str) -> CacheDirectory:
    clean = cache_directory(path, field)
    if clean not in known:
        raise Invalid(
            Reason.INVALID_SPEC,
            f"{field}: {path!r} is no cache of this set; its caches are {', '.join(known)}",
        )
    return known[clean]


def _text(value: str, field: str) -> str:
    if "\0" in value:
        raise _wrong(field, value, "a text without zero bytes")
    return value


def _number(value: int, field: str, default: int, least: int, most: int) -> int:
    """0 means the default, as in the original."""
    if value == 0:
        return default
    if not least <= value <= most:
        raise _wrong(field, value, f"a whole number from {least} to {most}")
    return value


def _wrong(field: str, value: object, wanted: str) -> Invalid:
    return Invalid(Reason.INVALID_SPEC, f"{field}: {repr(value)[:80]} is not {wanted}")
