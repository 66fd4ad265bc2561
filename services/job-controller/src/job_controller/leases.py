"""Reads Leases and notices that they are renewed.

The time in a Lease is that of another machine's clock. So it is only compared with itself: a Lease that has
changed between two reads was renewed, and the times of the reads are those of our own clock.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import spec_of
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import NotFound, Permanent, Retry
from paddlewheel.kube.objects import key_of
from paddlewheel.kube.ports import LEASES, Cluster, Object
from paddlewheel.operator.concurrency import gather_bounded

READS_AT_ONCE = 16
"""Leases that are read at the same time for all jobs. The client does not limit calls about Leases."""
LISTED_FROM = 64
"""From this number on, Leases of one namespace are read with one list."""
_MOST_GAPS = 5
"""A Lease with more gaps than this is given up, since it may never be read without one."""


@dataclass(frozen=True)
class Lease:
    """The result of the reads of one Lease; times on the monotonic clock.

    Args:
        renewed: its content, "" when it cannot be read.
        since: the first read with this content, of those without a long gap between two answers.
        read_at: the last read.
        renewed_after: it was renewed after this time, None when no two reads differ.
        is_deleted: it was readable before.
        gaps: how many long gaps there were between answers with this content.
    """

    renewed: str
    since: float
    read_at: float
    renewed_after: float | None = None
    is_deleted: bool = False
    gaps: int = 0

    @property
    def is_readable(self) -> bool:
        return bool(self.renewed)

    @property
    def unchanged_seconds(self) -> float:
        """How long it was read again and again with this content."""
        return self.read_at - self.since


class Leases:
    """Leases by address, each read once per interval, however many ask for it.

    Args:
        interval: seconds.
        longest_gap: seconds without an answer after which a Lease counts as read for the first time: an API
            server that was away kept it from being renewed.
    """

    def __init__(self, cluster: Cluster, clock: Clock, *, interval: float, longest_gap: float) -> None:
        self._cluster = cluster
        self._clock = clock
        self._interval = interval
        self._longest_gap = longest_gap
        self._found: dict[Key, Lease] = {}
        self._asked_at: dict[Key, float] = {}
        self._unanswered_at: dict[Key, float] = {}
        self._slots = asyncio.Semaphore(READS_AT_ONCE)

    def __len__(self) -> int:
        return len(self._asked_at)

    def get(self, key: Key) -> Lease | None:
        """None before the first answer."""
        return self._found.get(key)

    def is_hopeless(self, key: Key, since: float) -> bool:
        """A read that began at this time or later had no answer, like those before it, or answers come with
        many gaps."""
        found = self._found.get(key)
        if found is not None and found.gaps > _MOST_GAPS:
            return True
        at = self._unanswered_at.get(key, -math.inf)
        return at >= since and (found is None or at - found.read_at > self._longest_gap)

    async def read(self, keys: Iterable[Key]) -> None:
        """Read each Lease that was not read lately."""
        now = self._clock.monotonic()
        due = [k for k in keys if k not in self._asked_at or now >= self._asked_at[k] + self._interval]
        if not due:
            return
        self._asked_at |= dict.fromkeys(due, now)
        listed = frozenset(await self._list(due))
        await gather_bounded(self._ask(key) for key in due if key not in listed)

    def keep(self, keys: Collection[Key]) -> None:
        """Forget the others, which no job needs."""
        for key in self._asked_at.keys() - set(keys):
            del self._asked_at[key]
            self._found.pop(key, None)
            self._unanswered_at.pop(key, None)

    async def _list(self, due: Sequence[Key]) -> Collection[Key]:
        """The Leases that were read with a list: none where one list is no saving, or is not allowed."""
        namespaces = Counter(key.namespace for key in due)
        namespace, count = namespaces.most_common(1)[0] if namespaces else ("", 0)
        if count < LISTED_FROM:
            return ()
        wanted = [key for key in due if key.namespace == namespace]
        try:
            async with self._slots:
                asked_at = self._clock.monotonic()
                leases = await self._cluster.list(LEASES, namespace)
        except (Permanent, Retry):
            # An API server under load refuses a list earlier than a read.
            return ()
        found = {key_of(lease): lease for lease in leases}
        for key in wanted:
            self._take_in(key, found.get(key, {}), asked_at, is_gone=key not in found)
        return wanted

    async def _ask(self, key: Key) -> None:
        """After an error of the API server, the read is repeated."""
        try:
            async with self._slots:
                asked_at = self._clock.monotonic()
                lease, is_gone = await self._cluster.get(LEASES, key), False
        except Retry:
            self._unanswered_at[key] = asked_at
            return
        except (NotFound, Permanent) as error:
            lease, is_gone = {}, isinstance(error, NotFound)
        self._take_in(key, lease, asked_at, is_gone=is_gone)

    def _take_in(self, key: Key, lease: Object, asked_at: float, *, is_gone: bool) -> None:
        renewed = str(spec_of(lease).get("renewTime") or "")
        before = self._found.get(key)
        if before is not None and before.renewed == renewed:
            if asked_at - before.read_at > self._longest_gap:
                before = replace(before, since=self._clock.monotonic(), gaps=before.gaps + 1)
            self._found[key] = replace(before, read_at=asked_at)
            return
        was_readable = before is not None and before.is_readable
        renewed_after = before.read_at if before and was_readable and renewed else None
        is_deleted = is_gone and was_readable
        self._found[key] = Lease(renewed, self._clock.monotonic(), asked_at, renewed_after, is_deleted)
