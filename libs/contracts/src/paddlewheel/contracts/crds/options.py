"""Mount options of JuiceFS, and the checks of sources and cache directories. Options have JuiceFS's names."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict

from paddlewheel.contracts.crds.base import CrdModel, found, rule, rules, says
from paddlewheel.contracts.crds.limits import PATH_LENGTH

SOURCE_SCHEMES = (
    *("bos", "s3", "hdfs", "gs", "wasb", "oss", "cos", "ks3", "ufile", "qingstor", "jss", "qiniu", "b2"),
    *("space", "obs", "oos", "scw", "minio", "scs", "ibmcos", "wasabi", "mss", "nos", "eos", "speedy"),
    *("ceph", "swift", "webdav", "redis", "tikv", "file"),
)


_SOURCE = f"^({'|'.join(SOURCE_SCHEMES)})://."
SOURCE_REMEDY = "must be NAME://BUCKET[.ENDPOINT][/PREFIX] with NAME one of " + ", ".join(SOURCE_SCHEMES)


def known_source(uri: str) -> str:
    """CEL: `uri` is NAME://BUCKET[.ENDPOINT][/PREFIX], and NAME is in `SOURCE_SCHEMES`."""
    return f"{uri}.matches('{_SOURCE}') && {uri}.indexOf('://') == {uri}.lastIndexOf('://')"


def is_known_source(uri: str) -> bool:
    """`known_source` in Python."""
    return found(_SOURCE, uri) and uri.count("://") == 1


_RELATIVE_OR_ROOT, _PARENT = "(^|:)([^/]|[/.]*(:|$))", "(^|[/:])[.][.]([/:]|$)"
HOST_DIRECTORIES_REMEDY = "must be absolute directories joined by ':', without '..', e.g. /ssd/a:/ssd/b"


def host_directories(value: str) -> str:
    """CEL: `value` is a list of absolute directories joined by colons; none is the root or contains `..`."""
    return f"!{value}.matches('{_RELATIVE_OR_ROOT}') && !{value}.matches('{_PARENT}')"


def are_host_directories(value: str) -> bool:
    """`host_directories` in Python."""
    return not found(_RELATIVE_OR_ROOT, value) and not found(_PARENT, value)


_RATIO = "^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?$"


def kebab_case(name: str) -> str:
    """The JSON name of a field that is named after an option of JuiceFS."""
    return name.replace("_", "-")


CLIENT_NAMES = {"sub-dir": "subdir"}
"""Mount options with another name in the JuiceFS client and its CSI driver: name in manifests to name
there."""


class JuiceFSMountOptions(CrdModel):
    """Mount options of JuiceFS. An option that is absent, 0 or empty is not passed to the client."""

    model_config = ConfigDict(alias_generator=kebab_case)

    metrics: Annotated[
        str,
        says(
            "Address on which the client exports metrics, e.g. 0.0.0.0:9567; default: a free port of"
            " 127.0.0.1 for runtime pods, 127.0.0.1:9567 with the CSI driver."
        ),
    ] = ""
    attr_cache: Annotated[
        int, says("Seconds for which file attributes are cached; JuiceFS's default: 1.")
    ] = 0
    entry_cache: Annotated[int, says("Seconds for which file entries are cached; JuiceFS's default: 1.")] = 0
    dir_entry_cache: Annotated[
        int, says("Seconds for which directory entries are cached; JuiceFS's default: 1.")
    ] = 0
    enable_xattr: Annotated[bool, says("Support extended attributes.")] = False
    get_timeout: Annotated[int, says("Seconds after which a download fails; JuiceFS's default: 60.")] = 0
    put_timeout: Annotated[int, says("Seconds after which an upload fails; JuiceFS's default: 60.")] = 0
    io_retries: Annotated[
        int, says("Retries after network failures; JuiceFS's default: 10, before release 1.4: 30.")
    ] = 0
    max_uploads: Annotated[int, says("Concurrent connections for uploads; JuiceFS's default: 20.")] = 0
    buffer_size: Annotated[int, says("Size of the read and write buffer in MiB; JuiceFS's default: 300.")] = 0
    prefetch: Annotated[int, says("Blocks that are fetched ahead concurrently; JuiceFS's default: 1.")] = 0
    writeback: Annotated[
        bool,
        says(
            "Acknowledge a write once it is on the node, and upload it to the object store in the"
            " background. Until then the write exists on that node only."
        ),
    ] = False
    cache_dir: Annotated[
        str,
        says(
            "Cache directories joined by ':'. The paths of spec.cache.levels replace it.",
            maxLength=PATH_LENGTH,
            **rules(
                rule(
                    f"self == '' || ({host_directories('self')})",
                    HOST_DIRECTORIES_REMEDY,
                    lambda value: value == "" or are_host_directories(value),
                )
            ),
        ),
    ] = ""
    cache_size: Annotated[
        int, says("Size of the cache in MiB. The sum of spec.cache.levels[].cacheSize replaces it.")
    ] = 0
    free_space_ratio: Annotated[
        str,
        says(
            'Share of the disk to keep free, at least 0 and below 1, as text, e.g. "0.1"; default: "0.2",'
            " unless the operator of dataset-controller has changed it.",
            maxLength=32,
            **rules(
                rule(
                    f"self == '' || (self.matches('{_RATIO}') && double(self) < 1.0)",
                    'must be a number of at least 0 and below 1, as text, e.g. "0.2"',
                    lambda value: value == "" or (found(_RATIO, value) and float(value) < 1.0),
                )
            ),
        ),
    ] = ""
    cache_partial_only: Annotated[bool, says("Cache only small and random reads.")] = False
    open_cache: Annotated[
        int, says("Seconds for which open files are cached; default, and 0: they are not cached.")
    ] = 0
    sub_dir: Annotated[
        str, says("Directory of the volume to mount as the root, e.g. /team-a; default: the volume's root.")
    ] = ""
