"""Settings of an agent that starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cache_runtime.config import CacheRuntimeSettings


def make_settings(top: Path, **changes: Any) -> CacheRuntimeSettings:
    """Of partition 0 of the data set `digits`; all its directories are below `top`."""
    own: dict[str, Any] = {
        "set_namespace": "team",
        "set_name": "digits",
        "set_uid": "uid",
        "pod_name": "digits-runtime-0",
        "mount_path": top / "mnt",
        "cache_dirs": str(top / "cache"),
        "cache_roots": (str(top),),
    }
    return CacheRuntimeSettings(**{**own, **changes})
