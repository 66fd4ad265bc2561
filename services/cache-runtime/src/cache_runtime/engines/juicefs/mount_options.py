"""Mount options of the manifest as arguments of the JuiceFS 1.4 client."""

from __future__ import annotations

from collections.abc import Mapping

from cache_runtime.config import is_on
from paddlewheel.contracts.crds.options import CLIENT_NAMES
from paddlewheel.core.errors import Permanent

_VALUE_OPTIONS = """
    attr-cache entry-cache dir-entry-cache negative-entry-cache get-timeout put-timeout io-retries max-uploads
    max-downloads max-deletes upload-limit download-limit buffer-size prefetch max-readahead free-space-ratio
    open-cache metrics backup-meta heartbeat cache-items cache-eviction cache-scan-interval cache-expire
    verify-cache-checksum atime-mode storage-class cache-mode
"""
_VALUES = frozenset(_VALUE_OPTIONS.split())
_FLAG_OPTIONS = """
    enable-xattr writeback cache-partial-only cache-large-write read-only no-bgjob sort-dir fast-statfs
"""
_FLAGS = frozenset(_FLAG_OPTIONS.split())
_ALIASES = {**CLIENT_NAMES, **{name: name for name in CLIENT_NAMES.values()}}
_IGNORED = frozenset({"cache-dir", "cache-size"})
"""Set from the cache levels of the data set instead."""


def sub_directory(options: Mapping[str, str]) -> str:
    """The directory of the volume that is mounted as its root, "" = the root itself.

    Raises:
        Permanent: it is named twice, by both names of the option.
    """
    named = [(name, value) for name, value in options.items() if _ALIASES.get(name) == "subdir"]
    if len(named) > 1:
        text = "`sub-dir` and `subdir` are one option: name it once"
        raise Permanent("InvalidMountOption", f"csi.juiceFSMountOptions: {text}")
    return named[0][1] if named else ""


def mount_options(options: Mapping[str, str]) -> list[str]:
    """Arguments for all options. Raises Permanent for an unknown one, or one that is named twice."""
    sub_directory(options)
    return [argument for name in sorted(options) for argument in _arguments(name, options[name])]


def _arguments(name: str, value: str) -> list[str]:
    """None when it is off or ignored."""
    option = _ALIASES.get(name, name)
    if option in _IGNORED:
        return []
    if option in _FLAGS:
        return [f"--{option}"] if is_on(value) else []
    if option in _VALUES or option in _ALIASES.values():
        return [f"--{option}={value}"]
    raise Permanent("InvalidMountOption", f"csi.juiceFSMountOptions: {name!r} is not a JuiceFS mount option")
