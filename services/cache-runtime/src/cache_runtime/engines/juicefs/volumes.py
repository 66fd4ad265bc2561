"""The volume as its database describes it. Its owner is the author of the set: nothing in it is believed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import structlog

from cache_runtime.engines.juicefs import commands
from cache_runtime.engines.juicefs.addresses import EngineSecret
from cache_runtime.engines.juicefs.client import Completed, JuiceFsClient
from cache_runtime.engines.juicefs.output import is_unformatted
from paddlewheel.contracts.stores import InvalidStore, check_store
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger(__name__)

META_TIMEOUT = 30.0
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Volumes:
    """Formats and identifies volumes."""

    def __init__(self, client: JuiceFsClient) -> None:
        self._client = client

    async def ensure_formatted(self, engine: EngineSecret) -> str:
        """Format the volume when it is new; returns its UUID. Raises as `identify`."""
        status = await self._status(engine)
        if status.code and is_unformatted(status.stderr):
            log.info("formatting volume", volume=engine.name, storage=engine.storage)
            made = await self._client.run(commands.format_volume(engine), timeout=2 * META_TIMEOUT)
            if made.code:
                raise Retry("FormatFailed", made.problem)
            status = await self._status(engine)
        return _identify(engine, status)

    async def identify(self, engine: EngineSecret) -> str:
        """The volume's UUID.

        Raises:
            Retry: the database does not answer.
            Permanent: it holds another volume, or one whose data is where no volume may have it.
        """
        return _identify(engine, await self._status(engine))

    async def _status(self, engine: EngineSecret) -> Completed:
        return await self._client.run(commands.status(engine), timeout=META_TIMEOUT)


def _identify(engine: EngineSecret, status: Completed) -> str:
    if status.code:
        raise Retry("EngineUnreachable", status.problem)
    try:
        return _identified(engine, json.loads(status.stdout)["Setting"])
    except (ValueError, KeyError, TypeError) as error:
        text = (
            f"what `juicefs status` prints cannot be read ({len(status.stdout)} characters): {error!r};"
            " see whether metaurl holds a volume of JuiceFS, and whether thousands of sessions are left in it"
        )
        raise Retry("EngineUnreachable", text) from error


def _identified(engine: EngineSecret, setting: Mapping[str, Any]) -> str:
    if setting["Name"] != engine.name:
        text = f"metaurl holds volume {setting['Name']!r}, the secret's name is {engine.name!r}"
        raise Permanent("WrongVolume", text)
    if str(setting["Storage"]).lower() != engine.storage.lower():
        text = f"metaurl holds a volume on {setting['Storage']!r}, the secret's storage is {engine.storage!r}"
        raise Permanent("WrongVolume", text)
    try:
        check_store(setting["Storage"], setting["Bucket"])
    except InvalidStore as error:
        raise Permanent("WrongVolume", f"the volume in metaurl is not allowed: {error}") from error
    return _uuid(setting)


def _uuid(setting: Mapping[str, Any]) -> str:
    """The volume's blocks are in the directory of this name: anything else could be a path to elsewhere."""
    found = setting.get("UUID")
    if isinstance(found, str) and _UUID.fullmatch(found):
        return found
    raise Permanent(
        "WrongVolume",
        "metaurl holds a volume whose `UUID` is malformed; name a volume that juicefs formatted",
    )
