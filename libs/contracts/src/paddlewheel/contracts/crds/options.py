"""Mount options of the cache engine, and what else names a place of data; names are JuiceFS's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict

from paddlewheel.contracts.crds.base import CrdModel, found, rule, rules, says
from paddlewheel.contracts.crds.limits import PATH_LENGTH

# Contract B.4; `file` may be written file:///.
SOURCE_SCHEMES = (
    *("bos", "s3", "hdfs", "gs", "wasb", "oss", "cos", "ks3", "ufile", "qingstor", "jss", "qiniu", "b2"),
    *("space", "obs", "oos", "scw", "minio", "scs", "ibmcos", "wasabi", "mss", "nos", "eos", "speedy"),
    *("ceph", "swift", "webdav", "redis", "tikv", "file"),
)


_SOURCE = f"^({'|'.join(SOURCE_SCHEMES)})://."
SOURCE_REMEDY = "must be NAME://BUCKET[.ENDPOINT][/PREFIX] with NAME one of " + ", ".join(SOURCE_SCHEMES)


def known_source(uri: str) -> str:
    """CEL: `uri` is NAME://BUCKET[.ENDPOINT][/PREFIX] with a NAME that can be synced from."""
    return f"{uri}.matches('{_SOURCE}') && {uri}.indexOf('://') == {uri}.lastIndexOf('://')"


def is_known_source(uri: str) -> bool:
    """`known_source` in Python."""
    return found(_SOURCE, uri) and uri.count("://") == 1


_RELATIVE_OR_ROOT, _PARENT = "(^|:)([^/]|[/.]*(:|$))", "(^|[/:])[.][.]([/:]|$)"
HOST_DIRECTORIES_REMEDY = "must be absolute directories joined by ':', without '..', e.g. /ssd/a:/ssd/b"


def host_directories(value: str) -> str:
    """CEL: absolute directories of the host, joined by colons, none the root, none with `..`."""
    return f"!{value}.matches('{_RELATIVE_OR_ROOT}') && !{value}.matches('{_PARENT}')"


def are_host_directories(value: str) -> bool:
    """`host_directories` in Python."""
    return not found(_RELATIVE_OR_ROOT, value) and not found(_PARENT, value)


_RATIO = "^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?$"


def kebab_case(name: str) -> str:
    """Alias of a field whose JSON name is an option of JuiceFS."""
    return name.replace("_", "-")


CLIENT_NAMES = {"sub-dir": "subdir"}
"""Mount options that the client, and with it the CSI driver, knows by another name than manifests do."""


class JuiceFSMountOptions(CrdModel):
    """Mount options of JuiceFS; zero values are left out of the command."""

    model_config = ConfigDict(alias_generator=kebab_case)

    metrics: Annotated[
        str,
        says(
            "Address to export metrics on; the agents' default is a free port of 127.0.0.1, that of JuiceFS"
            " 127.0.0.1:9567."
        ),
    ] = ""
    attr_cache: Annotated[int, says("Attribute cache time-out, seconds; JuiceFS: 1.")] = 0
    entry_cache: Annotated[int, says("File entry cache time-out, seconds; JuiceFS: 1.")] = 0
    dir_entry_cache: Annotated[int, says("Directory entry cache time-out, seconds; JuiceFS: 1.")] = 0
    enable_xattr: Annotated[bool, says("Extended attributes.")] = False
    get_timeout: Annotated[int, says("Most seconds for a download; JuiceFS: 60.")] = 0
    put_timeout: Annotated[int, says("Most seconds for an upload; JuiceFS: 60.")] = 0
    io_retries: Annotated[
        int, says("Retries after network failures; JuiceFS 1.4: 10, where older releases have 30.")
    ] = 0
    max_uploads: Annotated[int, says("Connections for uploads; JuiceFS: 20.")] = 0
    buffer_size: Annotated[int, says("Read and write buffer, MiB; JuiceFS: 300.")] = 0
    prefetch: Annotated[int, says("Blocks fetched ahead; JuiceFS: 1.")] = 0
    writeback: Annotated[bool, says("Upload in the background.")] = False
    cache_dir: Annotated[
        str,
        says(
            "Cache directories joined by ':'; replaced by the paths of cache.levels.",
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
    cache_size: Annotated[int, says("Cache size, MiB; replaced by the sum over cache.levels.")] = 0
    free_space_ratio: Annotated[
        str,
        says(
            "Share of the disk to keep free, from 0 to below 1; without it, the operator's: 0.2 by default.",
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
    cache_partial_only: Annotated[bool, says("Cache small and random reads only.")] = False
    open_cache: Annotated[int, says("Open file cache time-out, seconds; 0 = off.")] = 0
    sub_dir: Annotated[str, says("Directory of the volume to mount as its root.")] = ""
