"""How much one data set may store in each of the streams that agents of all sets write.

One replica of bus-auth counts what it has admitted: by subject, the bytes of the last message. What was
removed meanwhile it learns from the stream, when a set seems to have used up its share: which of its subjects
are still there. A stream tells no bytes of them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from paddlewheel.bus import streams
from paddlewheel.bus.admin.set_writes import Write

OVERHEAD = 128
"""Bytes that a message counts beside its subject, headers and body: what it costs the server."""
FOUND = 512
"""Bytes that a message counts of which nothing but its subject is known."""
MOST_SUBJECTS = 700_000
"""Of all sets. Each takes less than 100 bytes of memory."""
_SET_COUNTS = 10
"""As so many subjects, whatever it has stored."""
QUOTAS: Mapping[str, int] = {
    stream.name: stream.max_bytes // 4 for stream in (streams.RUNS, streams.NODES, streams.WORK)
}
"""Bytes: of what each stream has declared, a quarter.

Records of a run that dataset-controller has removed count for an hour more: their markers are there, and a
stream does not tell which they are. A run alone, which publishes 64 MiB of work ahead, never meets the share
of work: with `OVERHEAD`, the smallest chunks (200 bytes and more) count less than twice.
"""
LOOK_AGAIN = 1.0
"""Seconds after which a stream is asked again what it has of a set, at least."""
TOLD_PER_SECOND = 10_000
"""Subjects that streams are asked for, of one set in the long run."""


def size_of(write: Write) -> int:
    """Bytes that it counts. What ends work goes by itself, and leaves nothing."""
    if write.ends_work:
        return 0
    headers = sum(len(name) + len(value) + len(": \r\n") for name, value in write.headers.items())
    return len(write.subject) + headers + len(write.body) + OVERHEAD


@dataclass
class _Account:
    """Of one set in one stream. A subject is known by its hash, which no agent can foresee."""

    sizes: dict[int, int] = field(default_factory=dict)
    total: int = 0
    writing: Counter[int] = field(default_factory=Counter)
    """Subjects of which a write is on its way."""
    since: set[int] | None = None
    """Subjects written since the stream is being asked; None while it is not."""
    look_at: float = 0.0

    def put(self, subject: int, size: int) -> None:
        """0 = it is gone."""
        self.total += size - self.sizes.pop(subject, 0)
        if size:
            self.sizes[subject] = size


class Quotas:
    """What each set has stored, as far as one replica knows; sets that have not written for longest are
    forgotten.

    Args:
        quotas: bytes, by stream.
        most: subjects to remember.
    """

    def __init__(self, quotas: Mapping[str, int] = QUOTAS, most: int = MOST_SUBJECTS) -> None:
        self._quotas, self._most = quotas, most
        self._accounts: OrderedDict[tuple[str, str], _Account] = OrderedDict()
        self._subjects = 0

    @property
    def subjects(self) -> int:
        """That are remembered."""
        return self._subjects

    def has_room(self, write: Write) -> bool:
        """Whether the set may store it. What takes the place of something larger may always be stored."""
        account = self._accounts.get((write.stream, write.set_uid)) or _Account()
        before, size = account.sizes.get(hash(write.subject), 0), size_of(write)
        return size <= before or account.total - before + size <= self._quotas[write.stream]

    def begin(self, write: Write) -> None:
        """It is on its way: it counts, and what it takes the place of does if that is larger."""
        key = (write.stream, write.set_uid)
        account = self._accounts.setdefault(key, _Account())
        self._accounts.move_to_end(key)
        subject = hash(write.subject)
        self._put(account, subject, max(size_of(write), account.sizes.get(subject, 0)))
        account.writing[subject] += 1
        self._forget()

    def end(self, write: Write, *, is_stored: bool) -> None:
        """Its answer came, or none will. Unless it is stored for certain, both go on counting."""
        account, subject = self._accounts[(write.stream, write.set_uid)], hash(write.subject)
        account.writing -= Counter((subject,))
        if account.since is not None:
            account.since.add(subject)
        if is_stored and subject not in account.writing:
            self._put(account, subject, size_of(write))

    def may_look(self, write: Write, now: float) -> bool:
        """Whether the stream may be asked what it has of the set: that is work, the more it has."""
        account = self._accounts.get((write.stream, write.set_uid))
        return account is not None and account.since is None and now >= account.look_at

    def begin_look(self, write: Write) -> None:
        """The stream is being asked. To be followed by `end_look`."""
        self._accounts[(write.stream, write.set_uid)].since = set()

    def end_look(self, write: Write, there: Set[int] | None, now: float) -> None:
        """The hashes of the subjects that are there, None when the stream did not say."""
        account = self._accounts[(write.stream, write.set_uid)]
        account.look_at = now + max(LOOK_AGAIN, len(there or ()) / TOLD_PER_SECOND)
        newer, account.since = account.since or set(), None
        if there is None:
            return
        for subject in account.sizes.keys() - there - newer - account.writing.keys():
            self._put(account, subject, 0)
        for subject in there - account.sizes.keys() - newer:
            self._put(account, subject, FOUND)

    def _put(self, account: _Account, subject: int, size: int) -> None:
        before = len(account.sizes)
        account.put(subject, size)
        self._subjects += len(account.sizes) - before

    def _forget(self) -> None:
        """The sets that have not written for longest, but for those of which something is on its way."""
        for key, account in list(self._accounts.items())[:-1] if self._is_crowded else ():
            if self._is_crowded and not account.writing and account.since is None:
                self._subjects -= len(account.sizes)
                del self._accounts[key]

    @property
    def _is_crowded(self) -> bool:
        return self._subjects + _SET_COUNTS * len(self._accounts) > self._most
