"""The volume as its database describes it. Its owner is the author of the set: nothing in it is believed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import structlog

from cache_runtime.engines.juicefs import commands
from cache_runtime.engines.juicefs.addresses import EngineSecret
from cache_runtime.engines.juicefs.client import Completed, JuiceFsClient
from cache_runtime.engines.juicefs.output import is_store_in_use, is_unformatted
from cache_runtime.timing import METADATA_TIMEOUT_SECONDS
from cache_runtime.volume_record import VolumeRecord
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stores import InvalidStore, check_store
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger(__name__)

_RESTORE = "restore the database from its backup"
_PUT_BACK = "if metaurl was changed in the engine's Secret, put back what it was"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Volumes:
    """Formats and identifies volumes. A set has one for life: its database never gets another in silence.

    Args:
        record: which one.
    """

    def __init__(self, client: JuiceFsClient, record: VolumeRecord) -> None:
        self._client, self._record = client, record

    async def ensure_formatted(self, engine: EngineSecret) -> str:
        """Format the volume of a set that was never mounted, when it is new; returns its UUID.

        Raises:
            Retry: as `identify`, or the bus does not say whether an empty database had a volume before.
            Permanent: as `identify`, or the set was mounted before, and the database is empty.
        """
        status = await self._status(engine)
        if is_absent(status):
            if known := await self._record.recall():
                raise Permanent(Reason.VOLUME_LOST, _emptied(known))
            await self._format(engine)
            status = await self._status(engine)
        with suppress(Retry):  # a mount needs no bus
            await self._record.recall()
        return self._own(_identify(engine, status))

    async def identify(self, engine: EngineSecret) -> str:
        """The volume's UUID.

        Raises:
            Retry: the database does not answer, or is empty.
            Permanent: it holds another volume, or one whose data is where no volume may have it.
        """
        status = await self._status(engine)
        if is_absent(status) and self._record.known:
            raise Retry(Reason.VOLUME_LOST, _emptied(self._record.known))
        return self._own(_identify(engine, status))

    def keep(self, volume_id: str) -> None:
        """Note what has been mounted."""
        self._record.keep(volume_id)

    def confirm(self, mounted: str) -> None:
        """Raises Retry when the bus, which was away then, has told since that it is not the set's volume."""
        if self._record.known not in ("", mounted):
            raise Retry(Reason.VOLUME_LOST, _another(mounted, self._record.known))

    def _own(self, found: str) -> str:
        """Raises Permanent for the volume of something else, or what was formatted in its place."""
        if self._record.known not in ("", found):
            raise Permanent(Reason.VOLUME_LOST, _another(found, self._record.known))
        return found

    async def _format(self, engine: EngineSecret) -> None:
        log.info("formatting volume", volume=engine.name, storage=engine.storage)
        made = await self._client.run(commands.format_volume(engine), timeout=2 * METADATA_TIMEOUT_SECONDS)
        if made.code and is_store_in_use(made.problem):
            raise Permanent(Reason.VOLUME_LOST, _in_use(engine.name))
        if made.code:
            raise Retry("FormatFailed", made.problem)

    async def _status(self, engine: EngineSecret) -> Completed:
        return await self._client.run(commands.status(engine), timeout=METADATA_TIMEOUT_SECONDS)


def is_absent(status: Completed) -> bool:
    """The database has no volume."""
    return bool(status.code) and is_unformatted(status.stderr)


def _emptied(known: str) -> str:
    text = f"the database in metaurl is empty, and the set was mounted from volume {known}: {_PUT_BACK}, else"
    return f"{text} {_RESTORE}; no other volume is put in its place"


def _another(found: str, known: str) -> str:
    """Whoever restores something there destroys that one."""
    text = f"metaurl holds volume {found}, and the set was mounted from volume {known}: {_PUT_BACK}"
    return f"{text}; restore nothing into this database, which has another volume"


def _in_use(name: str) -> str:
    """A format that was interrupted has left `juicefs_uuid` only."""
    return (
        f"the database in metaurl is empty, and the store has objects below {name}/: {_RESTORE} if they are"
        " those of a volume; choose another `name` if they are something else; remove juicefs_uuid if there"
        " is nothing but that"
    )


def _identify(engine: EngineSecret, status: Completed) -> str:
    if status.code:
        raise Retry("EngineUnreachable", status.problem)
    try:
        return _identified(engine, json.loads(_without_remarks(status.stdout))["Setting"])
    except (ValueError, KeyError, TypeError) as error:
        text = (
            f"what `juicefs status` prints cannot be read ({len(status.stdout)} characters): {error!r};"
            " see whether metaurl holds a volume of JuiceFS, and whether thousands of sessions are left in it"
        )
        raise Retry("EngineUnreachable", text) from error


def _without_remarks(printed: str) -> str:
    """The driver of MySQL prints lines before what the client prints."""
    return re.sub(r"\A(?:\[xorm\] .*\n)+", "", printed)


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
