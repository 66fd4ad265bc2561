"""JuiceFS Community Edition 1.4, driven through its command line and its control file."""

from __future__ import annotations

from cache_runtime.cell import Cell
from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.engines.juicefs.cache import JuiceFsCache
from cache_runtime.engines.juicefs.client import JuiceFsClient
from cache_runtime.engines.juicefs.control_file import ControlFile
from cache_runtime.engines.juicefs.mount import JuiceFsMount, MountPlan
from cache_runtime.engines.juicefs.transfer import JuiceFsTransfer
from cache_runtime.engines.juicefs.volume import JuiceFsVolume
from cache_runtime.engines.juicefs.volumes import Volumes
from cache_runtime.engines.ports import Engine, MountListener
from cache_runtime.local_sources import LocalSources
from cache_runtime.secret_files import SecretFiles
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.core.clock import Clock


def create_engine(
    settings: CacheRuntimeSettings,
    secrets: SecretFiles,
    clock: Clock,
    on_mount: MountListener,
    record: VolumeRecord,
) -> Engine:
    """Wire the engine; nothing is started."""
    cell = Cell(settings.state_dir / "cell")
    cell.sweep()
    client, control = JuiceFsClient(settings.juicefs, cell), ControlFile(settings.mount_path)
    options, cache_dirs = settings.mount_options, settings.cache_dir_list
    plan = MountPlan(settings.mount_path, settings.state_dir, cache_dirs, settings.cache_size_mib, options)
    volumes = Volumes(client, record)
    mount = JuiceFsMount(plan, client, volumes, secrets, clock, on_mount)
    local = LocalSources(settings.local_sources, cell.path)
    return Engine(
        mount=mount,
        volume=JuiceFsVolume(client, control),
        cache=JuiceFsCache(mount, control, cache_dirs),
        transfer=JuiceFsTransfer(client, volumes, secrets, options, local, cell),
    )
