"""A SampleSet's spec, checked and typed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.names import CACHE_ROOT, DEFAULT_CACHE_MIB, Reason
from dataset_controller.domain.objects import Object, key_of, reference, spec_of, uid_of
from dataset_controller.domain.operations import warmup_operation
from dataset_controller.domain.paths import cache_directory
from dataset_controller.domain.sources import Source, parse_source
from paddlewheel.contracts.dataset_names import SET_NAME_MAX
from paddlewheel.contracts.generated.cache_v1 import WarmupOperation
from paddlewheel.contracts.keys import Key

DRIVER = "juicefs"
PARTITIONS_MAX = 10_000
CACHE_MIB_MAX = 1 << 40
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class CacheSpec:
    """Host directories of the cache, and their size together in MiB."""

    directories: tuple[str, ...]
    size_mib: int


@dataclass(frozen=True)
class SetSpec:
    """What the user asked for. `mount_options` are JuiceFS's, sorted, without cache-dir and cache-size."""

    partitions: int
    no_sync: bool
    source: Source | None
    engine_secret: Key
    source_secret: Key
    mount_options: tuple[tuple[str, str], ...]
    cache: CacheSpec
    node_affinity: Mapping[str, Any] | None
    tolerations: Sequence[Mapping[str, Any]]
    warmup: WarmupOperation | None


def engine_secret_key(obj: Object) -> Key | None:
    """`spec.secretRef`."""
    return reference(obj, "secretRef", key_of(obj).namespace)


def source_secret_key(obj: Object) -> Key | None:
    """`spec.source.secretRef`, else `spec.secretRef`."""
    return reference(obj, "source.secretRef", key_of(obj).namespace) or engine_secret_key(obj)


def read_spec(obj: Object) -> SetSpec:
    """Check everything that does not depend on other objects.

    Raises:
        Invalid: names the field and the remedy.
    """
    _check_name(key_of(obj).name)
    spec = spec_of(obj)
    _check_driver(spec)
    engine, source = engine_secret_key(obj), source_secret_key(obj)
    if engine is None or source is None:
        raise Invalid(Reason.SECRET_NOT_EXIST, "spec.secretRef.name: name the Secret of the JuiceFS engine")
    no_sync = bool(spec.get("noSync", False))
    return SetSpec(
        partitions=_partitions(spec),
        no_sync=no_sync,
        source=_source(spec, no_sync),
        engine_secret=engine,
        source_secret=source,
        mount_options=_mount_options(spec),
        cache=_cache(spec, uid_of(obj)),
        node_affinity=spec.get("nodeAffinity"),
        tolerations=spec.get("tolerations") or (),
        warmup=None if spec.get("warmup") is None else warmup_operation(spec["warmup"], "spec.warmup"),
    )


def _check_name(name: str) -> None:
    if len(name) > SET_NAME_MAX:
        raise Invalid(
            Reason.SPEC_INVALID,
            f"metadata.name: {len(name)} characters; at most {SET_NAME_MAX}, or derived names do not fit",
        )
    if not _NAME.fullmatch(name):
        raise Invalid(
            Reason.SPEC_INVALID,
            "metadata.name: must begin with a letter and hold only a-z, 0-9 and '-' (no dots)",
        )


def _check_driver(spec: Mapping[str, Any]) -> None:
    driver = (spec.get("csi") or {}).get("driver") or DRIVER
    if driver != DRIVER:
        raise Invalid(
            Reason.DRIVER_NOT_EXIST, f"spec.csi.driver: {driver!r} is not known; leave it out or set {DRIVER}"
        )


def _partitions(spec: Mapping[str, Any]) -> int:
    partitions = int(spec.get("partitions") or 1)
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise Invalid(Reason.SPEC_INVALID, f"spec.partitions: {partitions} is not from 1 to {PARTITIONS_MAX}")
    return partitions


def _source(spec: Mapping[str, Any], no_sync: bool) -> Source | None:
    uri = (spec.get("source") or {}).get("uri")
    if uri:
        return parse_source(str(uri), "spec.source.uri")
    if no_sync:
        return None
    raise Invalid(
        Reason.SOURCE_INVALID, "spec.source.uri: name the source to sync from, or set spec.noSync: true"
    )


def _raw_options(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return (spec.get("csi") or {}).get("juiceFSMountOptions") or {}


def _mount_options(spec: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Non-zero values as text, booleans as `true`."""
    given = {k: v for k, v in _raw_options(spec).items() if v and k not in ("cache-dir", "cache-size")}
    return tuple(sorted((name, _option(name, value)) for name, value in given.items()))


def _option(name: str, value: object) -> str:
    text = "true" if value is True else str(value)
    if "," in text or any(ord(char) < 32 for char in text):
        raise Invalid(
            Reason.SPEC_INVALID,
            f"spec.csi.juiceFSMountOptions.{name}: a mount option cannot hold a comma or newline",
        )
    return text


def _cache(spec: Mapping[str, Any], uid: str) -> CacheSpec:
    levels = (spec.get("cache") or {}).get("levels") or ()
    options = _raw_options(spec)
    directories = [
        cache_directory(path, f"spec.cache.levels[{i}].path")
        for i, level in enumerate(levels)
        for path in str(level.get("path") or "").split(":")
        if path
    ] or [
        cache_directory(path, "spec.csi.juiceFSMountOptions.cache-dir")
        for path in str(options.get("cache-dir") or "").split(":")
        if path
    ]
    size = sum(int(level.get("cacheSize") or 0) for level in levels) or int(options.get("cache-size") or 0)
    if not 0 <= size <= CACHE_MIB_MAX:
        raise Invalid(
            Reason.SPEC_INVALID,
            f"spec.cache.levels: cacheSize of {size} MiB is not from 0 to {CACHE_MIB_MAX}",
        )
    unique = tuple(dict.fromkeys(directories)) or (f"{CACHE_ROOT}/{uid}",)
    return CacheSpec(unique, size or DEFAULT_CACHE_MIB)
