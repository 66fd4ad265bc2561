"""From raw objects to the types of `model.py`; the CRD's models read the spec, here it is resolved."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from dataset_controller.domain.cache_parts import divide
from dataset_controller.domain.invalid import Invalid, Problem
from dataset_controller.domain.limits import CACHE_MIB_MAX, DEFAULT_CACHE_MIB
from dataset_controller.domain.names import SECRET_VERSION_ANNOTATION, SetPhase
from dataset_controller.domain.operations import warmup_operation
from dataset_controller.domain.paths import DEFAULT_PLACES, Places, local_source, own_cache
from dataset_controller.domain.sampleset.model import (
    CacheChange,
    CacheMark,
    CacheSpec,
    RuntimePod,
    SampleSet,
    SetSpec,
    SetStatus,
    SyncOrigin,
    Warmth,
)
from dataset_controller.domain.secrets import secret_key
from dataset_controller.domain.sources import Source, parse_source
from dataset_controller.domain.status import parse_common
from dataset_controller.domain.stored import parse_stored
from paddlewheel.contracts.crds import JuiceFSMountOptions, SampleSetSpec, parse_sample_set_spec
from paddlewheel.contracts.crds.limits import CACHE_ENGINES, PARTITIONS
from paddlewheel.contracts.crds.sampleset import Cache, CacheLevel, Csi
from paddlewheel.contracts.dataset_names import SET_NAME_MAX
from paddlewheel.contracts.objects import (
    Object,
    annotations_of,
    deleted_at,
    key_of,
    labels_of,
    spec_of,
    status_of,
    uid_of,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.errors import Permanent

_MARKS = "./:@+=~ -"
_OPTION = re.compile(rf"[\w{re.escape(_MARKS)}\[\]]*")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

_NOT_LENT = (Reason.SOURCE_NOT_ALLOWED, Reason.CACHE_PATH_NOT_ALLOWED)


def parse_set(obj: Object, places: Places = DEFAULT_PLACES) -> SampleSet:
    """A SampleSet as the API server gives it; never raises."""
    spec, problem = _spec_or_problem(obj, places)
    return SampleSet(
        **parse_stored(obj),
        status=parse_status(obj),
        spec=spec,
        problem=problem,
    )


def _spec_or_problem(obj: Object, places: Places) -> tuple[SetSpec | None, Problem | None]:
    """Both, when the spec names directories that are not lent, or no longer."""
    try:
        return resolve_spec(obj, places), None
    except Invalid as invalid:
        return _spec_anywhere(obj, places) if invalid.problem.reason in _NOT_LENT else None, invalid.problem


def _spec_anywhere(obj: Object, places: Places) -> SetSpec | None:
    try:
        return resolve_spec(obj, Places(("/",), (*places.cache_roots, "/")))
    except Invalid:
        return None


def parse_status(obj: Object) -> SetStatus:
    """Read `status`; an unknown phase starts again at the beginning."""
    raw = status_of(obj)
    jobs, mark = raw.get("jobsName") or {}, raw.get("lastCacheChange") or {}
    phase = str(raw.get("phase") or "")
    return SetStatus(
        phase=SetPhase(phase) if phase in set(SetPhase) else SetPhase.NOT_BOUND,
        sync_job=str(jobs.get("syncJobName") or ""),
        sync_origin=SyncOrigin(str(jobs.get("syncSource") or ""), bool(jobs.get("syncOverwrites"))),
        warmup_job=str(jobs.get("warmupJobName") or ""),
        warmup_nodes=tuple(map(str, jobs.get("warmupNodes") or ())),
        warmup_series=int(jobs.get("warmupSeries") or 0),
        warmup_digest=str(jobs.get("warmupDigest") or ""),
        runtime=dict(raw.get("runtimeStatus") or {}),
        cache=dict(raw.get("cacheStatus") or {}),
        cache_directories=tuple(map(str, raw.get("cacheDirectories") or ())),
        was_writeback=bool(raw.get("wasWriteback")),
        nodes_with_writes=tuple(map(str, raw.get("nodesWithWrites") or ())),
        cache_mark=CacheMark(str(mark.get("time") or ""), str(mark.get("sampleJobName") or "")),
        invalidation=_invalidation(mark.get("invalidation") or {}),
        warmed_at=str(mark.get("warmedTime") or ""),
        warmth=Warmth(int(mark.get("warmedBytes") or 0), int(mark.get("heldBytes") or 0)),
        **parse_common(raw),
    )


def _invalidation(raw: Mapping[str, str]) -> CacheChange | None:
    """None as well with a reason that this release does not know."""
    reason = next((each for each in Reason if each == raw.get("reason")), None)
    mark = CacheMark(raw.get("time", ""), raw.get("sampleJobName", ""))
    return CacheChange(mark, reason) if reason else None


def resolve_spec(obj: Object, places: Places = DEFAULT_PLACES) -> SetSpec:
    """Check everything that does not depend on other objects.

    Raises:
        Invalid: names the field and the remedy.
    """
    key = key_of(obj)
    _check_name(key.name)
    spec = _read(obj)
    csi, options = _csi(spec)
    _check_driver(csi)
    engine = secret_key(spec.secret_ref, key.namespace)
    if engine is None:
        raise Invalid(Reason.SECRET_NOT_FOUND, "spec.secretRef.name: name the Secret of the JuiceFS engine")
    source_ref = spec.source.secret_ref if spec.source else None
    return SetSpec(
        partitions=_partitions(spec),
        no_sync=spec.no_sync,
        source=_source(spec, places),
        engine_secret=engine,
        source_secret=secret_key(source_ref, key.namespace) or engine,
        mount_options=_mount_options(options),
        cache=_cache(spec.cache or Cache(), options, places, f"{key.namespace}/{uid_of(obj)}"),
        node_affinity=spec.node_affinity,
        tolerations=spec.tolerations or (),
        warmup=None if spec.warmup is None else warmup_operation(spec.warmup, "spec.warmup"),
    )


def _read(obj: Object) -> SampleSetSpec:
    try:
        return parse_sample_set_spec(obj)
    except Permanent as error:
        raise Invalid(Reason.INVALID_SPEC, error.message) from error


def _check_name(name: str) -> None:
    if len(name) > SET_NAME_MAX:
        raise Invalid(
            Reason.INVALID_SPEC,
            f"metadata.name: {len(name)} characters; at most {SET_NAME_MAX}, or derived names do not fit",
        )
    if not _NAME.fullmatch(name):
        raise Invalid(
            Reason.INVALID_SPEC,
            "metadata.name: must start with a letter and contain only a-z, 0-9 and '-' (no dots)",
        )


def _csi(spec: SampleSetSpec) -> tuple[Csi, JuiceFSMountOptions]:
    csi = spec.csi or Csi()
    return csi, csi.juicefs_mount_options or JuiceFSMountOptions()


def _check_driver(csi: Csi) -> None:
    if csi.driver and csi.driver not in CACHE_ENGINES:
        known = " or ".join(CACHE_ENGINES)
        raise Invalid(
            Reason.UNKNOWN_ENGINE,
            f"spec.csi.driver: {csi.driver!r} is not known; leave it out or set {known}",
        )


def _partitions(spec: SampleSetSpec) -> int:
    partitions = spec.partitions or 1
    if not 1 <= partitions <= PARTITIONS:
        raise Invalid(Reason.INVALID_SPEC, f"spec.partitions: {partitions} is not from 1 to {PARTITIONS}")
    return partitions


def _source(spec: SampleSetSpec, places: Places) -> Source | None:
    if spec.source and spec.source.uri:
        source = parse_source(spec.source.uri, "spec.source.uri")
        local_source(source.uri, "spec.source.uri", places)
        return source
    if spec.no_sync:
        return None
    raise Invalid(
        Reason.INVALID_SOURCE, "spec.source.uri: name the source to sync from, or set spec.noSync: true"
    )


def _mount_options(options: JuiceFSMountOptions) -> tuple[tuple[str, str], ...]:
    """Non-zero values as text, booleans as `true`."""
    given = options.model_dump(by_alias=True, exclude={"cache_dir", "cache_size"})
    return tuple(sorted((name, _option(name, value)) for name, value in given.items() if value))


def _option(name: str, value: object) -> str:
    """Other programs than ours read them too: a CSI driver may give them to a shell."""
    text = "true" if value is True else str(value)
    field = f"spec.csi.juiceFSMountOptions.{name}"
    if not _OPTION.fullmatch(text):
        raise Invalid(
            Reason.INVALID_SPEC, f"{field}: {text!r} has other characters than letters, digits and {_MARKS}"
        )
    if ".." in text.split("/"):
        raise Invalid(Reason.INVALID_SPEC, f"{field}: {text!r} contains '..'; write the plain path")
    return text


def _cache(cache: Cache, options: JuiceFSMountOptions, places: Places, owner: str) -> CacheSpec:
    """`owner` is `<namespace>/<uid>` of the set."""
    levels = cache.levels
    named = [
        (path, f"spec.cache.levels[{i}].path")
        for i, level in enumerate(levels)
        for path in _split(level.path)
    ] or [(path, "spec.csi.juiceFSMountOptions.cache-dir") for path in _split(options.cache_dir)]
    named = named or [(places.cache_roots[0], "spec.cache.levels")]
    directories = [own_cache(path, field, places, owner) for path, field in named]
    size = sum(level.cache_size for level in levels) or options.cache_size
    if not 0 <= size <= CACHE_MIB_MAX:
        raise Invalid(
            Reason.INVALID_SPEC,
            f"spec.cache.levels: cacheSize of {size} MiB is not from 0 to {CACHE_MIB_MAX}",
        )
    plain = CacheSpec(tuple(dict.fromkeys(directories)), size or DEFAULT_CACHE_MIB)
    if not levels or not all(level.cache_size > 0 for level in levels):
        return plain
    return _with_sizes(plain, _sizes(levels, [directory.named for directory in directories]))


def _split(paths: str) -> list[str]:
    return [path for path in paths.split(":") if path]


def _sizes(levels: Sequence[CacheLevel], directories: Sequence[str]) -> Mapping[str, int]:
    """MiB by directory, in the order of the levels' paths: a level's size is that of its paths together."""
    sizes: dict[str, int] = {}
    names = iter(directories)
    for level in levels:
        paths = _split(level.path)
        for name in islice(names, len(paths)):
            sizes[name] = sizes.get(name, 0) + level.cache_size // len(paths)
    return sizes


def _with_sizes(cache: CacheSpec, sizes: Mapping[str, int]) -> CacheSpec:
    """Each level has its own size, however the client divides the sum."""
    if len(set(sizes.values())) <= 1 or not all(sizes.values()):
        return cache
    division = divide(sizes)
    directories = tuple(replace(d, parts=division.parts[d.named]) for d in cache.directories)
    return CacheSpec(tuple(d for d in directories if d.parts), division.size_mib)


def parse_runtime_pod(obj: Object) -> RuntimePod | None:
    """A pod of a set's runtime, None for another pod: those are named `<runtime>-<partition>`."""
    runtime, _, partition = key_of(obj).name.rpartition("-")
    if runtime != labels_of(obj).get("name") or not partition.isdecimal():
        return None
    is_usable = is_ready(obj) and not deleted_at(obj)
    return RuntimePod(
        key=key_of(obj),
        index=int(partition),
        node=str(spec_of(obj).get("nodeName") or ""),
        is_ready=is_usable,
        ends_at=parse_stamp(deleted_at(obj)),
        has_ended=status_of(obj).get("phase") in ("Succeeded", "Failed"),
        has_agent=any("running" in (c.get("state") or {}) for c in _containers(obj)),
        trouble="" if is_usable else _pod_trouble(obj),
        secret_version=annotations_of(obj).get(SECRET_VERSION_ANNOTATION, ""),
    )


def is_ready(obj: Object) -> bool:
    """Whether a pod or a node has the condition Ready."""
    conditions = status_of(obj).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _containers(pod: Object) -> Sequence[Object]:
    return status_of(pod).get("containerStatuses") or ()


def _pod_trouble(pod: Object) -> str:
    status = status_of(pod)
    for container in _containers(pod):
        if waiting := (container.get("state") or {}).get("waiting"):
            return f"{waiting.get('reason', 'Waiting')}: {waiting.get('message', '')}".rstrip(": ")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', 'Unscheduled')}: {condition.get('message', '')}".rstrip(": ")
    return ""
