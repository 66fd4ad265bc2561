"""Mount options of the manifest as arguments of the JuiceFS 1.4 client."""

from __future__ import annotations

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
_ALIASES = {"sub-dir": "subdir", "subdir": "subdir"}
_IGNORED = frozenset({"cache-dir", "cache-size"})
"""Set from the cache levels of the data set instead."""


def mount_option(name: str, value: str) -> list[str]:
    """The argument for an option, none when it is off or ignored. Raises Permanent for an unknown one."""
    option = _ALIASES.get(name, name)
    if option in _IGNORED:
        return []
    if option in _FLAGS:
        return [f"--{option}"] if value.lower() in ("", "true", "1") else []
    if option in _VALUES or option in _ALIASES.values():
        return [f"--{option}={value}"]
    raise Permanent("InvalidMountOption", f"csi.juiceFSMountOptions: {name!r} is not a JuiceFS mount option")
