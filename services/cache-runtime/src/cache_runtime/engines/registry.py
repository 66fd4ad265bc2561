"""The table of cache engines. To add one: a folder beside these, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cache_runtime.config import CacheRuntimeSettings
from cache_runtime.engines import directory, juicefs
from cache_runtime.engines.ports import Engine, MountListener, VolumeRecord
from cache_runtime.secret_files import SecretFiles
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Permanent

EngineFactory = Callable[[CacheRuntimeSettings, SecretFiles, Clock, MountListener, VolumeRecord], Engine]

ENGINES: Mapping[str, EngineFactory] = {
    "juicefs": juicefs.create_engine,
    "directory": directory.create_engine,
}


def engine_factory(name: str) -> EngineFactory:
    """Raises Permanent(UnknownEngine)."""
    if name not in ENGINES:
        raise Permanent("UnknownEngine", f"engine: {name!r} is not one of {', '.join(ENGINES)}")
    return ENGINES[name]
