"""A directory that every node has mounted, such as an NFS export; nodes copy its files to their disks.

The smallest engine: no client, no database, no blocks. Pods only read.
"""

from __future__ import annotations

from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.engines.directory.cache import DirectoryCache
from cache_runtime.engines.directory.copies import Copies
from cache_runtime.engines.directory.mount import DirectoryMount
from cache_runtime.engines.directory.shared import FIELD, SharedDirectory
from cache_runtime.engines.directory.transfer import DirectoryTransfer
from cache_runtime.engines.directory.volume import DirectoryVolume
from cache_runtime.engines.ports import Engine, MountListener, VolumeRecord
from cache_runtime.local_sources import LocalSources, Purpose
from cache_runtime.secret_files import SecretFiles
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent

_VOLUMES = Purpose(FIELD, "CACHE_RUNTIME_SHARED_VOLUMES", "rw")
_OPTIONS = frozenset({"free-space-ratio", "cache-dir", "cache-size"})


def create_engine(
    settings: CacheRuntimeSettings,
    secrets: SecretFiles,
    clock: Clock,
    on_mount: MountListener,
    record: VolumeRecord,
) -> Engine:
    """Wire the engine; nothing is started. Raises Permanent for a mount option that it does not know."""
    if unknown := sorted(settings.mount_options.keys() - _OPTIONS):
        text = f"csi.juiceFSMountOptions: {unknown[0]!r} is no option of the engine `directory`"
        raise Permanent("InvalidMountOption", text)
    state = settings.state_dir
    volumes = LocalSources(settings.shared_volumes, state / "volumes", _VOLUMES)
    shared = SharedDirectory(volumes, secrets, state / "shared", record)
    limit = settings.cache_size_mib << 20
    copies = Copies(shared.root, settings.cache_dir_list, limit, settings.free_ratio)
    mount = DirectoryMount(settings.mount_path, state, shared, copies, clock, on_mount)
    return Engine(
        mount=mount,
        volume=DirectoryVolume(mount, shared, copies),
        cache=DirectoryCache(mount, copies),
        transfer=DirectoryTransfer(shared, LocalSources(settings.local_sources, state), volumes),
    )
