"""SampleSet, batch.paddlepaddle.org/v1alpha1: a data set and its cache on nodes.

In a bound set only `partitions` and `noSync` are meant to change. Other edits cause a warning (see
`admission_rules`), and the schema does not refuse them, for three reasons: the original operator accepted
them; a failed sync is corrected by editing `source` or a Secret reference; and one refused field would fail a
whole `kubectl apply`. An edit that removes cache directories is not applied (`CacheMoved`).
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
    """The object store that the data is copied from."""

    uri: Annotated[
        str,
        says(
            "Address of the data: NAME://BUCKET[.ENDPOINT][/PREFIX], e.g."
            " s3://bucket.s3.example.com/imagenet. NAME:// is required: without it, JuiceFS reads the"
            " address as a path in the runtime's container. file:// is allowed only for the"
            " directories, and below them, in the chart's datasetController.localSources.",
            minLength=10,
            maxLength=PATH_LENGTH,
        ),
    ] = ""
    secret_ref: Annotated[
        SecretReference | None,
        says(
            "Secret with the credentials of the source; default: spec.secretRef, the Secret of the cache"
            " engine. If it has no keys, an s3:// bucket is read as a public one, never with the role of the"
            " node; minio:// and oss:// require keys. Keys have no effect with gs://, whose client uses the"
            " role of the node."
        ),
    ] = None


class Csi(CrdModel):
    """The cache engine."""

    driver: Annotated[
        str, says("Name of the cache engine.", enum=list(CACHE_ENGINES), **api_default(CACHE_ENGINES[0]))
    ] = CACHE_ENGINES[0]
    juicefs_mount_options: Annotated[
        JuiceFSMountOptions | None, says("Options with which JuiceFS mounts the set.")
    ] = None

    model_config = ConfigDict(
        alias_generator=lambda name: {"juicefs_mount_options": "juiceFSMountOptions"}.get(name, name)
    )


class CacheLevel(CrdModel):
    """One tier of the cache, on each node of the set."""

    medium_type: Annotated[
        str, says("Medium of the tier, for information: MEM, SSD or HDD.", enum=list(MEDIUM_TYPES))
    ] = ""
    path: Annotated[
        str,
        says(
            "Directories of the node, joined by ':', e.g. /ssd/a:/ssd/b. They must be below the chart's"
            " datasetController.cacheRoots. A set uses the subdirectory NAMESPACE/UID.",
            minLength=1,
            maxLength=PATH_LENGTH,
            **rules(rule(host_directories("self"), HOST_DIRECTORIES_REMEDY, are_host_directories)),
        ),
    ] = ""
    cache_size: Annotated[
        int,
        says(
            "Size of the tier in MiB, for all of its paths together. A tier with less than 1/128 of the size"
            " of all tiers is not used.",
            format="int64",
        ),
    ] = 0


class Cache(CrdModel):
    """The location of the cache on the nodes."""

    levels: Annotated[
        tuple[CacheLevel, ...],
        says("Tiers of the cache, each with its directories and size.", minItems=1, maxItems=64),
    ] = ()


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
    """The desired data set and its cache."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            needs(
                ".partitions",
                "spec.partitions is required: set the number of nodes that hold the cache, at least 1",
            ),
            needs(
                ".secretRef",
                "spec.secretRef is required: name the Secret with keys name, storage, bucket and metaurl",
            ),
            _SECRET_NAME,
            _SOURCE_URI,
        )
    )

    partitions: Annotated[
        int,
        int32(
            "Number of nodes that hold the cache. Each one holds a partition of the data.",
            minimum=1,
            maximum=PARTITIONS,
        ),
    ] = 1
    source: Annotated[
        Source | None, says("Object store that the first sync copies from. Required unless noSync is true.")
    ] = None
    secret_ref: Annotated[
        SecretReference | None,
        says(
            "Secret of the cache engine, with the keys name, storage, bucket, metaurl, access-key and"
            " secret-key."
        ),
    ] = None
    no_sync: Annotated[
        bool,
        says(
            "Whether to skip the first sync, because the cache engine has the data already; default: false."
        ),
    ] = False
    csi: Annotated[Csi | None, says("Cache engine and its mount options.")] = None
    cache: Annotated[Cache | None, says("Location and size of the cache on the nodes.")] = None
    node_affinity: Annotated[
        NodeAffinity | None, says("Nodes that may hold the cache; default: any node.")
    ] = None
    tolerations: Annotated[Tolerations | None, says("Taints that the set's runtime pods tolerate.")] = None
    warmup: Annotated[
        WarmupOptions | None,
        says(
            "Warmup that runs after the first sync, and again when these options change. The set is ready"
            " only after it. Default: no warmup."
        ),
    ] = None


class NodeCache(CrdModel):
    """The cache of one partition on its node."""

    partition: Annotated[int, int32("Index of the partition.")] = 0
    node: Annotated[str, says("Name of the node that holds the partition.")] = ""
    cached_percent: Annotated[
        int,
        int32(
            "Bytes cached on the node as a percentage of the partition's share, which is the size of the set"
            " divided by the number of partitions. At most 100."
        ),
    ] = 0
    mounted: Annotated[
        bool, says("Whether the set is mounted on the node. Without a mount nothing counts as cached.")
    ] = False
    cached_size: Annotated[str, says("Size of the cached data on the node, e.g. 4.2 GiB.")] = ""
    cache_capacity: Annotated[
        str,
        says(
            "Size that the cache on the node can have at most: its configured size, or less if its disks"
            " have less room."
        ),
    ] = ""
    staged_size: Annotated[
        str,
        says(
            "Size of the data that pods have written and that is on the node only, not in the object store"
            " yet."
        ),
    ] = ""
    hit_rate: Annotated[
        str,
        says(
            "Share of the bytes read on the node since the set was mounted that came from the cache, e.g."
            " 87%. The reads of a warmup count, too."
        ),
    ] = ""


class CacheStatus(CrdModel):
    """Figures of the cache, for people: sizes with IEC units, numbers with thousands separators."""

    total_size: Annotated[str, says("Size of the set, e.g. 58 MiB.")] = ""
    total_files: Annotated[str, says("Number of files in the set, e.g. 128,660.")] = ""
    cached_size: Annotated[
        str,
        says(
            "Size of the cached data on all nodes. It can be above totalSize: a cache counts the space that"
            " blocks take on its disk, and keeps blocks of removed files for a while."
        ),
    ] = ""
    cached_percent: Annotated[
        int, int32("Bytes cached on all nodes as a percentage of the size of the set. At most 100.")
    ] = 0
    cache_capacity: Annotated[str, says("Size that all caches together can have at most.")] = ""
    staged_size: Annotated[
        str,
        says(
            "Size of the data that pods have written and that is on nodes only, not in the object store yet."
        ),
    ] = ""
    disk_size: Annotated[str, says("Size of the disks that hold the caches.")] = ""
    disk_used: Annotated[str, says("Used space on the disks that hold the caches.")] = ""
    disk_avail: Annotated[str, says("Free space on the disks that hold the caches.")] = ""
    disk_usage_rate: Annotated[
        str, says("Used space as a percentage of the size of the disks, e.g. 12.3%.")
    ] = ""
    error_massage: Annotated[
        str,
        says(
            "Partitions without figures, and figures that could not be measured. The field is misspelled for"
            " compatibility with the original operator."
        ),
    ] = ""
    nodes: Annotated[
        list[NodeCache],
        says("The cache on each node, by partition.", **{"x-kubernetes-list-type": "atomic"}),
    ] = Field(default_factory=list)


class LostMount(CrdModel):
    """A node that has lost the mount of the set."""

    partition: Annotated[int, int32("Index of the partition.")] = 0
    node: Annotated[str, says("Name of the node. Pods on it cannot read the set.")] = ""
    since: Annotated[
        str, says("When dataset-controller detected the loss, by its own clock.", format="date-time")
    ] = ""
    reason: Annotated[
        str,
        says(
            "Why the mount is lost, as one CamelCase word. Stopped: on purpose, e.g. because the runtime pod"
            " is replaced."
        ),
    ] = ""
    message: Annotated[str, says("Why the mount is lost, and what to do.")] = ""


class RuntimeStatus(CrdModel):
    """The set's runtime pods, which mount it on the nodes."""

    runtime_ready: Annotated[str, says("Number of ready and of desired runtime pods, e.g. 1/2.")] = ""
    spec_replicas: Annotated[int, int32("Desired number of runtime pods.")] = 0
    ready_replicas: Annotated[int, int32("Number of runtime pods that have the set mounted.")] = 0
    lost_mounts: Annotated[
        list[LostMount],
        says(
            "Nodes that have lost the mount. Jobs restart their ranks on these nodes. Always empty with a"
            " CSI driver, which gives each pod its own mount.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = Field(default_factory=list)


class JobsName(CrdModel):
    """The runs that the set itself has started."""

    sync_job_name: Annotated[str, says("Id of the run of the first sync.")] = ""
    sync_source: Annotated[str, says("Address that the first sync copies from, without keys.")] = ""
    sync_overwrites: Annotated[
        bool,
        says(
            "Whether the first sync replaces all files, even if their size is the same. It does if an"
            " earlier attempt has left files from another source. Absent after a SampleJob of type sync with"
            " delete-dst has removed such files."
        ),
    ] = False
    warmup_job_name: Annotated[str, says("Id of the run of the warmup in spec.warmup.")] = ""
    warmup_nodes: Annotated[
        list[str],
        says(
            "Nodes that this warmup has warmed, by partition. When the set is on other nodes, it is warmed"
            " again.",
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = Field(default_factory=list)
    warmup_series: Annotated[
        int,
        says(
            "Number of times that the warmup was started again, with other options or for other nodes. It is"
            " a part of the run's id, which makes each id unique.",
            format="int64",
        ),
    ] = 0
    warmup_digest: Annotated[
        str,
        says("Digest of the warmup's options. When spec.warmup changes, the set is warmed again."),
    ] = ""


class CacheInvalidation(CrdModel):
    """The last SampleJob that has changed files or emptied caches.

    Warmups that began before it are outdated.
    """

    time: Annotated[str | None, says("When the SampleJob ended.", format="date-time")] = None
    sample_job_name: Annotated[str, says("Name of the SampleJob, which may be deleted.")] = ""
    reason: Annotated[str, says("Kind of the change: DataChanged or CacheCleared.")] = ""


class LastCacheChange(CrdModel):
    """The last change of the caches' content, by a SampleJob or by the set's own warmup.

    The condition Warmed describes its effect.
    """

    time: Annotated[
        str | None,
        says("When the SampleJob ended, or the set's own warmup began.", format="date-time"),
    ] = None
    sample_job_name: Annotated[
        str, says("Name of the SampleJob, which may be deleted. Absent if it was the set's own warmup.")
    ] = ""
    warmed_bytes: Annotated[
        int, says("Number of bytes that the last warmup loaded. Only while the set is warm.", format="int64")
    ] = 0
    held_bytes: Annotated[
        int,
        says(
            "Number of bytes that the caches held after the warmup, by their first reports. When they hold"
            " clearly less than that, the set is no longer warm.",
            format="int64",
        ),
    ] = 0
    warmed_time: Annotated[str | None, says("When the set's own warmup last ended.", format="date-time")] = (
        None
    )
    invalidation: CacheInvalidation | None = None


class SampleSetStatus(CommonStatus):
    """The observed state of the set."""

    phase: Annotated[
        str, says("Phase of the set: NotBound, Bound, Mount, Syncing, SyncFailed, PartialReady or Ready.")
    ] = ""
    cache_status: CacheStatus | None = None
    runtime_status: RuntimeStatus | None = None
    jobs_name: JobsName | None = None
    last_cache_change: LastCacheChange | None = None
    was_writeback: Annotated[
        bool,
        says(
            "Whether the mount option writeback is set, or was set once: pods then write to the cache of"
            " their node first."
        ),
    ] = False
    nodes_with_writes: Annotated[
        list[str],
        says(
            "Nodes without a runtime pod that have written data which is not in the object store, including"
            " data that was given up. The condition StagedWrites has the details.",
            maxItems=NODES_WITH_WRITES,
        ),
    ] = Field(default_factory=list)
    cache_directories: Annotated[
        list[str],
        says(
            "Directories that the set's caches use, or have used, on their nodes. None is ever removed from"
            " this list."
        ),
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
