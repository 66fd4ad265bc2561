"""Options of data operations and of the cache engine's mount; names are JuiceFS's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ConfigDict

from paddlewheel.contracts.crds.base import (
    KEY_LENGTH,
    PATH_LENGTH,
    PATHS,
    CrdModel,
    api_default,
    int32,
    needs,
    rule,
    rules,
    says,
    without_parents,
)

# Contract B.4; `file` may be written file:///.
SOURCE_SCHEMES = (
    *("bos", "s3", "hdfs", "gs", "wasb", "oss", "cos", "ks3", "ufile", "qingstor", "jss", "qiniu", "b2"),
    *("space", "obs", "oos", "scw", "minio", "scs", "ibmcos", "wasabi", "mss", "nos", "eos", "speedy"),
    *("ceph", "swift", "webdav", "redis", "tikv", "file"),
)

_NO_PARENT = rule(
    without_parents("self"), "must not contain '..': give a path below the data set's root, e.g. train"
)
_NO_NUL = r"^[^\x00]*$"
_PATH = {"maxLength": KEY_LENGTH, "pattern": _NO_NUL}
_RELATIVE = {**_PATH, **rules(_NO_PARENT)}
_CACHE_DIRECTORY = rule(
    without_parents("self"),
    "must not contain '..': name a cache directory as spec.cache.levels of the set does",
)
_NAMES_SOMETHING = rule(
    r"!self.matches('^[/.]*$')", "must not be the data set's root: name the paths to remove"
)


def known_source(uri: str) -> str:
    """CEL: `uri` is NAME://BUCKET[.ENDPOINT][/PREFIX] with a NAME that can be synced from."""
    schemes = "|".join(SOURCE_SCHEMES)
    return f"{uri}.matches('^({schemes})://.') && {uri}.indexOf('://') == {uri}.lastIndexOf('://')"


SOURCE_REMEDY = "must be NAME://BUCKET[.ENDPOINT][/PREFIX] with NAME one of " + ", ".join(SOURCE_SCHEMES)


def host_directories(value: str) -> str:
    """CEL: absolute directories of the host, joined by colons, none the root, none with `..`."""
    relative_or_root, parent = "(^|:)([^/]|[/.]*(:|$))", "(^|[/:])[.][.]([/:]|$)"
    return f"!{value}.matches('{relative_or_root}') && !{value}.matches('{parent}')"


HOST_DIRECTORIES_REMEDY = "must be absolute directories joined by ':', without '..', e.g. /ssd/a:/ssd/b"


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def _at_least_zero(value: int) -> int:
    return max(value, 0)


class JuiceFSMountOptions(CrdModel):
    """Mount options of JuiceFS; zero values are left out of the command."""

    model_config = ConfigDict(alias_generator=_kebab)

    metrics: Annotated[str, says("Address to export metrics on; JuiceFS: 127.0.0.1:9567.")] = ""
    attr_cache: Annotated[int, says("Attribute cache time-out, seconds; JuiceFS: 1.")] = 0
    entry_cache: Annotated[int, says("File entry cache time-out, seconds; JuiceFS: 1.")] = 0
    dir_entry_cache: Annotated[int, says("Directory entry cache time-out, seconds; JuiceFS: 1.")] = 0
    enable_xattr: Annotated[bool, says("Extended attributes.")] = False
    get_timeout: Annotated[int, says("Most seconds for a download; JuiceFS: 60.")] = 0
    put_timeout: Annotated[int, says("Most seconds for an upload; JuiceFS: 60.")] = 0
    io_retries: Annotated[int, says("Retries after network failures; JuiceFS: 30.")] = 0
    max_uploads: Annotated[int, says("Connections for uploads; JuiceFS: 20.")] = 0
    buffer_size: Annotated[int, says("Read and write buffer, MiB; JuiceFS: 300.")] = 0
    prefetch: Annotated[int, says("Blocks fetched ahead; JuiceFS: 1.")] = 0
    writeback: Annotated[bool, says("Upload in the background.")] = False
    cache_dir: Annotated[
        str,
        says(
            "Cache directories joined by ':'; replaced by the paths of cache.levels.",
            maxLength=PATH_LENGTH,
            **rules(rule(f"self == '' || ({host_directories('self')})", HOST_DIRECTORIES_REMEDY)),
        ),
    ] = ""
    cache_size: Annotated[int, says("Cache size, MiB; replaced by the sum over cache.levels.")] = 0
    free_space_ratio: Annotated[
        str,
        says(
            "Share of the disk to keep free, from 0 to below 1; JuiceFS: 0.1.",
            maxLength=32,
            **rules(
                rule(
                    "self == '' || (self.matches('^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?$')"
                    " && double(self) < 1.0)",
                    'must be a number of at least 0 and below 1, as text, e.g. "0.2"',
                )
            ),
        ),
    ] = ""
    cache_partial_only: Annotated[bool, says("Cache small and random reads only.")] = False
    open_cache: Annotated[int, says("Open file cache time-out, seconds; 0 = off.")] = 0
    sub_dir: Annotated[str, says("Directory of the volume to mount as its root.")] = ""


class SyncOptions(CrdModel):
    """What to copy into the data set, from where."""

    model_config = ConfigDict(alias_generator=_kebab)

    source: Annotated[
        str,
        says(
            "[NAME://]BUCKET[.ENDPOINT][/PREFIX]; empty = the set's own source.",
            maxLength=PATH_LENGTH,
            **rules(rule(f"self == '' || ({known_source('self')})", SOURCE_REMEDY)),
        ),
    ] = ""
    destination: Annotated[str, says("Directory below the set's root; empty = the root.", **_RELATIVE)] = ""
    start: Annotated[str, says("First key to copy.")] = ""
    end: Annotated[str, says("Last key to copy.")] = ""
    exclude: Annotated[str, says("Pattern of keys to leave out.")] = ""
    include: Annotated[str, says("Pattern of keys to copy.")] = ""
    manager: Annotated[str, says("Accepted and without effect: runs are led over the bus.")] = ""
    worker: Annotated[str, says("Accepted and without effect: every node of the set takes part.")] = ""
    threads: Annotated[int, int32("Concurrent transfers; 0 = 10.", minimum=0)] = 0
    http_port: Annotated[int, int32("Accepted and without effect.")] = 0
    bwlimit: Annotated[
        int, int32("Mbit per second over all nodes together; 0 = no limit."), AfterValidator(_at_least_zero)
    ] = 0
    update: Annotated[bool, says("Copy again where the source is newer.")] = False
    force_update: Annotated[bool, says("Copy again always.")] = False
    perms: Annotated[bool, says("Keep permissions.")] = False
    dirs: Annotated[bool, says("Copy directories too.")] = False
    dry: Annotated[bool, says("Copy nothing.")] = False
    delete_src: Annotated[bool, says("Delete from the source what was copied.")] = False
    delete_dst: Annotated[bool, says("Delete from the destination what the source lacks.")] = False
    no_https: Annotated[bool, says("Speak plain HTTP to the source.")] = False


class WarmupOptions(CrdModel):
    """What to bring onto the nodes and how it is split."""

    paths: Annotated[
        tuple[Annotated[str, says("Path below the set's root.", **_RELATIVE)], ...],
        says("Paths below the set's root; none = the whole set.", minItems=1, maxItems=PATHS),
    ] = ()
    partitions: Annotated[int, int32("Replaced by the set's own number.", minimum=1)] = 1
    strategy_name: Annotated[
        str,
        says(
            "sequence: as SequenceSampler reads; random: as RandomSampler does.",
            enum=["random", "sequence"],
            **api_default("sequence"),
        ),
    ] = "sequence"
    file: Annotated[str, says("Path below the set's root of a ready list, one path a line.", **_RELATIVE)] = (
        ""
    )
    threads: Annotated[int, int32("Concurrent reads on each node; 0 = 50.", minimum=0)] = 0


class RmrOptions(CrdModel):
    """What to remove from the data set."""

    model_config = ConfigDict(
        json_schema_extra=rules(needs(".paths", "paths is required: name the paths to remove"))
    )

    paths: Annotated[
        tuple[
            Annotated[
                str, says("Path below the set's root.", **_PATH, **rules(_NO_PARENT, _NAMES_SOMETHING))
            ],
            ...,
        ],
        says("Paths below the set's root.", minItems=1, maxItems=PATHS),
    ] = ()


class ClearOptions(CrdModel):
    """Which cache directories to empty."""

    paths: Annotated[
        tuple[Annotated[str, says("Cache directory of the host.", **_PATH, **rules(_CACHE_DIRECTORY))], ...],
        says("Cache directories, or where the runtime mounts them; none = all.", minItems=1, maxItems=PATHS),
    ] = ()
