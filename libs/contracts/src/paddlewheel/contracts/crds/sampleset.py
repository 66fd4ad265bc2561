"""SampleSet, batch.paddlepaddle.org/v1alpha1: a data set and its cache on nodes.

The schema makes no field of a bound set immutable, although only `partitions` and `noSync` are meant to
change then: the original accepted any change and continued to run, a failed sync is corrected by editing
`source` or a Secret reference, and a refused edit would fail a whole `kubectl apply`. Such edits cause a
warning instead (see `admission_rules`); one that leaves out cache directories is not applied (`CacheMoved`).
"""

from __future__ import annotations

from re import fullmatch
from typing import Annotated

from pydantic import ConfigDict, Field

from paddlewheel.contracts.crds.base import (
    CrdModel,
    api_default,
    int32,
    is_given,
    needs,
    rule,
    rules,
    says,
)
from paddlewheel.contracts.crds.common import CommonStatus, SecretReference
from paddlewheel.contracts.crds.limits import (
    CACHE_ENGINES,
    MEDIUM_TYPES,
    NODES_WITH_WRITES,
    PARTITIONS,
    PATH_LENGTH,
    SERVICE_NAME,
)
from paddlewheel.contracts.crds.operations import WarmupOptions
from paddlewheel.contracts.crds.options import (
    HOST_DIRECTORIES_REMEDY,
    SOURCE_REMEDY,
    JuiceFSMountOptions,
    are_host_directories,
    host_directories,
    is_known_source,
    known_source,
)
from paddlewheel.contracts.crds.placement import NodeAffinity, Tolerations
from paddlewheel.contracts.dataset_names import SET_NAME_MAX


class Source(CrdModel):
    """Where the data comes from."""

    uri: Annotated[
        str,
        says(
            "NAME://BUCKET[.ENDPOINT][/PREFIX], e.g. s3://bucket.s3.example.com/imagenet. An address without"
            " NAME:// is refused, for JuiceFS takes it for a path in the runtime's container: write the name"
            " of the store first. Of file:// only what the chart's datasetController.localSources names.",
            minLength=10,
            maxLength=PATH_LENGTH,
        ),
    ] = ""
    secret_ref: Annotated[
        SecretReference | None,
        says(
            "Credentials of the source, where they differ from the engine's. Without keys, a bucket of s3://"
            " is read as a public one, never with the role of the node; minio:// and oss:// need keys. Keys"
            " have no effect for gs://, whose client takes the role of the node."
        ),
    ] = None


class Csi(CrdModel):
    """The cache engine."""

    driver: Annotated[
        str, says("Cache engine.", enum=list(CACHE_ENGINES), **api_default(CACHE_ENGINES[0]))
    ] = CACHE_ENGINES[0]
    juicefs_mount_options: Annotated[JuiceFSMountOptions | None, says("Mount options.")] = None

    model_config = ConfigDict(
        alias_generator=lambda name: {"juicefs_mount_options": "juiceFSMountOptions"}.get(name, name)
    )


class CacheLevel(CrdModel):
    """One tier of the cache on every node of the set."""

    medium_type: Annotated[str, says("MEM, SSD or HDD.", enum=list(MEDIUM_TYPES))] = ""
    path: Annotated[
        str,
        says(
            "Directories of the host, joined by ':', below those that the chart's"
            " datasetController.cacheRoots names. A set uses the subdirectory NAMESPACE/UID.",
            minLength=1,
            maxLength=PATH_LENGTH,
            **rules(rule(host_directories("self"), HOST_DIRECTORIES_REMEDY, are_host_directories)),
        ),
    ] = ""
    cache_size: Annotated[
        int,
        says(
            "MiB, over all paths of the level together. A level below 1/128 of all levels is not used.",
            format="int64",
        ),
    ] = 0


class Cache(CrdModel):
    """Location of the cache."""

    levels: Annotated[tuple[CacheLevel, ...], says("Tiers of the cache.", minItems=1, maxItems=64)] = ()


_SOURCE_URI = rule(
    "(has(self.noSync) && self.noSync) || !has(self.source) || !has(self.source.uri)"
    f" || ({known_source('self.source.uri')})",
    f"source.uri {SOURCE_REMEDY}; or set noSync: true when the data is in the engine already",
    lambda spec: (
        spec.no_sync
        or spec.source is None
        or not is_given(spec.source, "uri")
        or is_known_source(spec.source.uri)
    ),
    field=".source.uri",
)
_SECRET_NAME = rule(
    "!has(self.secretRef) || (has(self.secretRef.name) && self.secretRef.name != '')",
    "spec.secretRef.name is required: name the Secret with keys name, storage, bucket and metaurl",
    lambda spec: spec.secret_ref is None or spec.secret_ref.name != "",
    field=".secretRef.name",
    reason="FieldValueRequired",
)


class SampleSetSpec(CrdModel):
    """What to cache and where."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(
                ".partitions", "spec.partitions is required: say how many nodes hold the cache, at least 1"
            ),
            needs(
                ".secretRef",
                "spec.secretRef is required: name the Secret with keys name, storage, bucket and metaurl",
            ),
            _SECRET_NAME,
            _SOURCE_URI,
        )
    )

    partitions: Annotated[int, int32("Cache nodes.", minimum=1, maximum=PARTITIONS)] = 1
    source: Annotated[Source | None, says("Where the first sync copies from.")] = None
    secret_ref: Annotated[
        SecretReference | None,
        says("Secret of the cache engine: name, storage, bucket, metaurl, access-key, secret-key."),
    ] = None
    no_sync: Annotated[bool, says("The data is already in the engine: do not copy it.")] = False
    csi: Annotated[Csi | None, says("Cache engine and its mount options.")] = None
    cache: Annotated[Cache | None, says("Location of the cache on the nodes.")] = None
    node_affinity: Annotated[NodeAffinity | None, says("Nodes that may hold the cache.")] = None
    tolerations: Annotated[Tolerations | None, says("Taints the runtime pods tolerate.")] = None
    warmup: Annotated[
        WarmupOptions | None,
        says(
            "Warmup after the first sync, and again when what it asks for is changed; the set is ready only"
            " after it."
        ),
    ] = None


class NodeCache(CrdModel):
    """What one partition's node has cached."""

    partition: Annotated[int, int32("Index of the partition.")] = 0
    node: Annotated[str, says("The node that holds it.")] = ""
    cached_percent: Annotated[
        int,
        int32(
            "Bytes cached on the node, of the partition's share: the size of the set divided by the number of"
            " partitions. At most 100."
        ),
    ] = 0
    mounted: Annotated[bool, says("The set is mounted there. Without a mount nothing counts as cached.")] = (
        False
    )
    cached_size: Annotated[str, says("Bytes cached on the node, e.g. 4.2 GiB.")] = ""
    cache_capacity: Annotated[
        str, says("Bytes that its cache can hold at most: its own size, or what its disks have room for.")
    ] = ""
    staged_size: Annotated[
        str, says("Bytes written by pods that are on the node only, and not in the object store yet.")
    ] = ""
    hit_rate: Annotated[
        str,
        says(
            "Bytes read from the cache, of all bytes read there since the set was mounted, e.g. 87%; a warmup"
            " reads what is missing."
        ),
    ] = ""


class CacheStatus(CrdModel):
    """Figures of the cache, human-readable: IEC sizes, thousands separators."""

    total_size: Annotated[str, says("Size of the set, e.g. 58 MiB.")] = ""
    total_files: Annotated[str, says("Files of the set, e.g. 128,660.")] = ""
    cached_size: Annotated[
        str,
        says(
            "Bytes on the nodes; not capped at totalSize: a cache counts each block with what it takes on the"
            " disk, and what was removed or replaced until it drops that."
        ),
    ] = ""
    cached_percent: Annotated[int, int32("Bytes on the nodes, of the size of the set. At most 100.")] = 0
    cache_capacity: Annotated[str, says("Bytes that all caches together can hold at most.")] = ""
    staged_size: Annotated[
        str, says("Bytes written by pods that are on the nodes only, and not in the object store yet.")
    ] = ""
    disk_size: Annotated[str, says("Size of the cache disks.")] = ""
    disk_used: Annotated[str, says("Used on the cache disks.")] = ""
    disk_avail: Annotated[str, says("Free on the cache disks.")] = ""
    disk_usage_rate: Annotated[str, says("Used over size, e.g. 12.3%.")] = ""
    error_massage: Annotated[
        str,
        says(
            "Which partitions report no figures, and what others could not measure; spelled as in the first"
            " release."
        ),
    ] = ""
    nodes: Annotated[
        list[NodeCache],
        says("What each node has cached, by partition.", **{"x-kubernetes-list-type": "atomic"}),
    ] = Field(default_factory=list)


class LostMount(CrdModel):
    """A node that has lost the mount of the set."""

    partition: Annotated[int, int32("Index of the partition.")] = 0
    node: Annotated[str, says("The node; pods on it cannot read the set.")] = ""
    since: Annotated[
        str, says("When dataset-controller learned of it, by its own clock.", format="date-time")
    ] = ""
    reason: Annotated[
        str, says("Why, CamelCase. Stopped = on purpose, as when the runtime pod is replaced.")
    ] = ""
    message: Annotated[str, says("Why, and what to do.")] = ""


class RuntimeStatus(CrdModel):
    """Runtime pods."""

    runtime_ready: Annotated[str, says("ready/wanted, e.g. 1/2.")] = ""
    spec_replicas: Annotated[int, int32("Wanted runtime pods.")] = 0
    ready_replicas: Annotated[int, int32("Runtime pods that have the set mounted.")] = 0
    lost_mounts: Annotated[
        list[LostMount],
        says(
            "Nodes without the mount; jobs restart ranks that run there. Not with a CSI driver, by which each"
            " pod has a mount of its own.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = Field(default_factory=list)


class JobsName(CrdModel):
    """Runs that the set has started itself."""

    sync_job_name: Annotated[str, says("Run id of the first sync.")] = ""
    sync_source: Annotated[str, says("What it copies from, without keys.")] = ""
    sync_overwrites: Annotated[
        bool,
        says(
            "It replaces all files, also those of the same size: an attempt before had another source, and"
            " has left files. Absent once a SampleJob of type sync with delete-dst has removed them."
        ),
    ] = False
    warmup_job_name: Annotated[str, says("Run id of the warmup in spec.warmup.")] = ""
    warmup_nodes: Annotated[
        list[str],
        says(
            "Nodes that this warmup was for, by partition. When the set is on others, it is warmed again.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = Field(default_factory=list)
    warmup_series: Annotated[
        int,
        says(
            "How often the warmup was begun anew, with other options or for other nodes. Its run id is made"
            " from it, so that none repeats.",
            format="int64",
        ),
    ] = 0
    warmup_digest: Annotated[
        str,
        says(
            "Digest of what the warmup was asked for. When spec.warmup asks for something else, the set is"
            " warmed again."
        ),
    ] = ""


class CacheInvalidation(CrdModel):
    """What a SampleJob has last done to the caches, or to the files: a warmup begun before is outdated."""

    time: Annotated[str | None, says("When the SampleJob had ended.", format="date-time")] = None
    sample_job_name: Annotated[str, says("The SampleJob, which may be deleted by now.")] = ""
    reason: Annotated[str, says("DataChanged or CacheCleared.")] = ""


class LastCacheChange(CrdModel):
    """What has last changed what the caches hold of the set: the condition Warmed says how."""

    time: Annotated[
        str | None,
        says("When the SampleJob had ended, or the set's own warmup was begun.", format="date-time"),
    ] = None
    sample_job_name: Annotated[
        str, says("The SampleJob, which may be deleted by now; absent: the set's own warmup.")
    ] = ""
    warmed_bytes: Annotated[
        int, says("Of a set that is warm: bytes that the last warmup has loaded.", format="int64")
    ] = 0
    held_bytes: Annotated[
        int,
        says(
            "Of these, what the caches held by the first reports after the warmup. When they hold clearly"
            " less, the set is not warm any more.",
            format="int64",
        ),
    ] = 0
    warmed_time: Annotated[
        str | None, says("When the set's own warmup had ended last.", format="date-time")
    ] = None
    invalidation: CacheInvalidation | None = None


class SampleSetStatus(CommonStatus):
    """The state of the set."""

    phase: Annotated[str, says("NotBound, Bound, Mount, Syncing, SyncFailed, PartialReady or Ready.")] = ""
    cache_status: CacheStatus | None = None
    runtime_status: RuntimeStatus | None = None
    jobs_name: JobsName | None = None
    last_cache_change: LastCacheChange | None = None
    was_writeback: Annotated[
        bool,
        says("Pods write to the caches of their nodes first, by the mount option writeback, or did once."),
    ] = False
    nodes_with_writes: Annotated[
        list[str],
        says(
            "Nodes without a runtime pod that have what no store has, as the condition StagedWrites says;"
            " also those of which it says that this is given up.",
            maxItems=NODES_WITH_WRITES,
        ),
    ] = Field(default_factory=list)
    cache_directories: Annotated[
        list[str],
        says("What the runtime pods have, or had, for caches on their nodes; none is left out again."),
    ] = Field(default_factory=list)


SAMPLE_SET_RULES = (
    rule(
        "oldSelf.hasValue() || has(self.spec)",
        "spec is required: set spec.partitions, spec.source.uri and spec.secretRef.name",
        lambda subject: subject.has_spec,
        field=".spec",
        reason="FieldValueRequired",
        optionalOldSelf=True,
    ),
    rule(
        f"oldSelf.hasValue() || (size(self.metadata.name) <= {SET_NAME_MAX}"
        f" && self.metadata.name.matches('{SERVICE_NAME}'))",
        f"metadata.name must have at most {SET_NAME_MAX} characters, begin with a letter and have no '.',"
        " since the names of the set's pods and Service are made from it",
        lambda subject: len(subject.name) <= SET_NAME_MAX and bool(fullmatch(SERVICE_NAME, subject.name)),
        field=".metadata.name",
        optionalOldSelf=True,
    ),
)
