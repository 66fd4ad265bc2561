"""Which volume a set has: the one that was mounted first, by the reports of its agents."""

from __future__ import annotations

import structlog

from paddlewheel.bus.ports import KeyValue
from paddlewheel.bus.streams import NODES_BUCKET
from paddlewheel.contracts.generated.cache_v1 import NodeStatus
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.run_keys import set_pattern
from paddlewheel.contracts.wire import from_json
from paddlewheel.core.errors import Permanent, Retry

log = structlog.get_logger(__name__)


class VolumeRecord:
    """The volume that the set was first mounted from. Synced and warmed data is in that volume."""

    def __init__(self, nodes: KeyValue, set_uid: str) -> None:
        self._nodes, self._set_uid = nodes, set_uid
        self._recorded = self._mounted = ""

    @property
    def known(self) -> str:
        """UUID of the volume, without a question to the bus; "" before any mount.

        The first record outranks the mount of this process.
        """
        return self._recorded or self._mounted

    async def recall(self) -> str:
        """UUID as any agent of the set knows it; "" when the set was never mounted.

        Raises:
            Retry: the bus does not answer; or no report names a volume, and one report cannot be read
                (RecordUnreadable).
        """
        if not self._recorded:
            self._recorded = await self._read()
        return self.known

    def keep(self, volume_id: str) -> None:
        """Note which volume this process has mounted. Its reports name that volume."""
        self._mounted = volume_id

    async def _read(self) -> str:
        unreadable = []
        for entry in await self._nodes.entries(set_pattern(self._set_uid)):
            try:
                report = from_json(NodeStatus, entry.value or b"{}")
            except Permanent as error:
                log.warning("malformed node record", key=entry.key, problem=error.message)
                unreadable.append(entry.key)
                continue
            if report.volume_id:
                return report.volume_id
            if report.volume_unknown:
                unreadable.append(entry.key)
        if unreadable and not self._mounted:
            raise Retry(Reason.RECORD_UNREADABLE, _unreadable(unreadable[0]))
        return ""


def _unreadable(key: str) -> str:
    return (
        f"record {key!r} in bucket {NODES_BUCKET} of the bus cannot be read, or is in the place of one that"
        " could not, and no other says which volume the set has: restore the bus from its backup, or delete"
        " this record if the set was never mounted"
    )
