"""The engine secret: the files that describe the volume."""

from __future__ import annotations

from cache_runtime.engines.juicefs.addresses import EngineSecret
from cache_runtime.secret_files import SecretFiles
from paddlewheel.contracts.stores import InvalidStore, check_engine
from paddlewheel.core.errors import Permanent, Retry

_KEYS = ("name", "storage", "bucket", "metaurl")


async def read_engine_secret(files: SecretFiles) -> EngineSecret:
    """What the client may be given.

    Raises:
        Retry: a file is missing; the message names it.
        Permanent: `InvalidSecret`; a value that is not allowed.
    """
    values = {key: await files.read(f"engine.{key}") for key in _KEYS}
    for key, value in values.items():
        if not value:
            raise Retry(
                "SecretMissing", f"{files.path(f'engine.{key}')}: add key {key!r} to the engine secret"
            )
    try:
        check_engine(values)
    except InvalidStore as error:
        raise Permanent("InvalidSecret", f"engine Secret: {error}") from error
    return EngineSecret(**values, keys=await files.keys("engine"))
