"""Which volume a set has, as the reports of its agents tell: the one that was mounted first, for life."""

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


class ReportedVolume:
    """Implements `VolumeRecord`. What is kept here, reports of this agent say."""

    def __init__(self, nodes: KeyValue, set_uid: str) -> None:
        self._nodes, self._set_uid = nodes, set_uid
        self._recorded = self._mounted = ""

    @property
    def known(self) -> str:
        """Without asking the bus. What was recorded first counts more than what this process has mounted."""
        return self._recorded or self._mounted

    async def recall(self) -> str:
        """Read the reports until one names a volume.

        Raises:
            Retry: the bus does not answer; or none names one, and one cannot be read, or is in the place of
                one that could not (RecordUnreadable).
        """
        if not self._recorded:
            self._recorded = await self._read()
        return self.known

    def keep(self, volume_id: str) -> None:
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
