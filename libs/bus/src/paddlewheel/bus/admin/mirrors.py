"""The state of a team's copies of the fact streams, from the server's reports on copy, feed and origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIRROR_FEED_GRACE_SECONDS = 30.0
"""Seconds without a message or heartbeat after which a mirror is broken; heartbeats come each second."""
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class MirrorStatus:
    """One copy. `lag`: facts that have not arrived in it. `trouble`: why none arrive, "" when they do."""

    team: str
    stream: str
    lag: int
    trouble: str = ""


def judge_mirror(
    team: str, stream: str, mirror: Mapping[str, Any] | None, feed: Mapping[str, Any] | None, origin_last: int
) -> MirrorStatus:
    """The state of a mirror.

    Args:
        mirror: JetStream's report on the mirror; None when it does not exist.
        feed: JetStream's report on the consumer that feeds it; None when it does not exist.
        origin_last: the last sequence of the origin stream, read after `mirror`.
    """
    lag = int(feed.get("num_pending") or 0) if feed else origin_last
    return MirrorStatus(team, stream, lag, _trouble(mirror, feed, lag, origin_last))


def is_ahead(mirror: Mapping[str, Any], origin_last: int) -> bool:
    """Whether the mirror is ahead of its origin, which was restored. No message arrives in such a mirror."""
    return int(mirror["state"]["last_seq"]) > origin_last


def _trouble(
    mirror: Mapping[str, Any] | None, feed: Mapping[str, Any] | None, lag: int, origin_last: int
) -> str:
    if mirror is None or feed is None:
        return "it does not exist; bus-installer makes it, or its log contains the reason why it cannot"
    if is_ahead(mirror, origin_last):
        return "it is ahead of its stream, restored from an older copy; bus-installer makes it again"
    source = mirror.get("mirror") or {}
    if error := source.get("error"):
        return f"the server cannot feed it: {error.get('description', error)}"
    active = int(source.get("active") or 0)
    # Negative = nothing arrived yet, which is right for the copy of an empty stream.
    if (active < 0 and lag) or active > MIRROR_FEED_GRACE_SECONDS * _NANOSECONDS:
        return "no facts arrive in it; the log of the NATS server contains the reason"
    return ""
