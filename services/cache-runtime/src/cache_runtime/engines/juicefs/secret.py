"""The engine secret: the files that describe the volume."""

from __future__ import annotations

from cache_runtime.engines.juicefs.addresses import EngineSecret
from cache_runtime.secret_files import SecretFiles
from paddlewheel.core.errors import Retry

_KEYS = ("name", "storage", "bucket", "metaurl")


async def read_engine_secret(files: SecretFiles) -> EngineSecret:
    """Raises Retry, naming the file that is missing."""
    values = {key: await files.read(f"engine.{key}") for key in _KEYS}
    for key, value in values.items():
        if not value:
            raise Retry(
                "SecretMissing", f"{files.path(f'engine.{key}')}: add key {key!r} to the engine secret"
            )
    return EngineSecret(**values, keys=await files.keys("engine"))
