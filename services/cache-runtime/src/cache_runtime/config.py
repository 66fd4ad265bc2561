"""Settings, read once from CACHE_RUNTIME_*."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from paddlewheel.contracts.places import CACHE_ROOTS, is_inside, is_normalized, root_above
from paddlewheel.core.settings import ServiceSettings

FREE_RATIO = 0.1
"""The client's own default."""


class CacheRuntimeSettings(ServiceSettings):
    """Settings of one runtime pod."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_prefix="CACHE_RUNTIME_")

    http_port: int = Field(default=7716, ge=0, le=65535)
    set_namespace: str = Field(min_length=1)
    set_name: str = Field(min_length=1)
    set_uid: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    pod_name: str = Field(pattern=r"^.*-[0-9]+$")
    """Ends in the ordinal, which is the partition."""
    node_name: str = ""
    mount_path: Path
    cache_dirs: str = Field(min_length=1)
    """Colon-joined absolute paths."""
    cache_size_mib: int = Field(default=102_400, ge=1)
    """Over all cache directories together."""
    mount_options: dict[str, str] = Field(default_factory=dict)
    """JSON object: mount options of the manifest."""
    secrets_dir: Path = Path("/etc/paddlewheel/secrets")
    secret_wait: float = Field(default=150.0, ge=0)
    """Seconds until a secret file that a run names must have appeared."""
    flush_wait: float = Field(default=0.0, ge=0)
    """Seconds that the client gets at the end to upload what was written to the cache only (writeback)."""
    juicefs: str = "juicefs"
    """Program of the JuiceFS client, 1.4."""
    chunk_mib: float = Field(default=64.0, gt=0)
    chunk_files: int = Field(default=2000, ge=1, le=10_000)
    walk_threads: int = Field(default=16, ge=1, le=256)
    status_interval: float = Field(default=10.0, gt=0)
    """Seconds between two NodeStatus records."""

    cache_roots: tuple[str, ...] = CACHE_ROOTS
    """JSON list: every cache directory is below one of these, and no link leads out."""
    local_sources: tuple[str, ...] = ()
    """JSON list: `file://` sources may be these directories or below them."""
    state_dir: Path = Path("/run/paddlewheel")
    """This process' own; local sources are mounted in it."""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        """Caches, sources and the mount are neither in nor above what holds keys and state."""
        bus = (self.nats_tls_dir, self.nats_creds_file and self.nats_creds_file.parent)
        own = (self.secrets_dir, self.state_dir, *(folder for folder in bus if folder))
        for path in (*self.cache_dir_list, *self.local_sources, str(self.mount_path)):
            if not is_normalized(path) or any(_overlap(path, str(held)) for held in own):
                raise ValueError(f"{path!r}: must be absolute, without '..', and apart from keys and state")
        for path in self.cache_dir_list:
            real, roots = os.path.realpath(path), [os.path.realpath(root) for root in self.cache_roots]
            if root_above(path, self.cache_roots) is None or root_above(real, roots) is None:
                raise ValueError(
                    f"{path!r}: is not below {' or '.join(self.cache_roots)}, or a link leads out"
                )
        return self

    @property
    def cache_dir_list(self) -> list[str]:
        """The cache directories."""
        return self.cache_dirs.split(":")

    @property
    def free_ratio(self) -> float:
        """The share of the cache's disks that stays free, 0 to 1."""
        try:
            return float(self.mount_options.get("free-space-ratio", FREE_RATIO))
        except ValueError:
            return FREE_RATIO  # the client refuses to mount with it, and says why

    @property
    def is_writeback(self) -> bool:
        """Pods write to the cache first, and the client uploads it afterwards."""
        return is_on(self.mount_options.get("writeback", "false"))

    @property
    def partition(self) -> int:
        """The ordinal of the pod."""
        return int(re.findall(r"[0-9]+$", self.pod_name)[0])


def is_on(value: str) -> bool:
    """Whether this value of a mount option that is a flag turns it on."""
    return value.lower() in ("", "true", "1")


def _overlap(one: str, other: str) -> bool:
    return is_inside(one, other) or is_inside(other, one)
