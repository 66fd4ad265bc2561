"""How a team's copies of the fact streams do, judged by what the server says of copy, feed and origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MIRROR_FEED_GRACE_SECONDS = 30.0
"""Seconds after which a mirror without a sign of its feed is broken; its heartbeats come each second."""
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class MirrorStatus:
    """One copy. `lag`: facts that it is still to get. `trouble`: why it gets none, "" when it is fed."""

    team: str
    stream: str
    lag: int
    trouble: str = ""


def judge_mirror(
    team: str, stream: str, mirror: Mapping[str, Any] | None, feed: Mapping[str, Any] | None, origin_last: int
) -> MirrorStatus:
    """By JetStream's answers about both; None for what does not exist.

    Args:
        origin_last: the last sequence of the stream itself, asked for after the mirror's.
    """
    lag = int(feed.get("num_pending") or 0) if feed else origin_last
    return MirrorStatus(team, stream, lag, _trouble(mirror, feed, lag, origin_last))


def is_ahead(mirror: Mapping[str, Any], origin_last: int) -> bool:
    """It has what its stream, restored from an older copy, has lost: nothing new will ever come to it."""
    return int(mirror["state"]["last_seq"]) > origin_last


def _trouble(
    mirror: Mapping[str, Any] | None, feed: Mapping[str, Any] | None, lag: int, origin_last: int
) -> str:
    if mirror is None or feed is None:
        return "it does not exist; bus-installer makes it, or says why it cannot"
    if is_ahead(mirror, origin_last):
        return "it has more than its stream, which was restored from an older copy; bus-installer remakes it"
    source = mirror.get("mirror") or {}
    if error := source.get("error"):
        return f"the server cannot feed it: {error.get('description', error)}"
    active = int(source.get("active") or 0)
    # Negative: never. One that was just made of an empty stream lacks nothing.
    if (active < 0 and lag) or active > MIRROR_FEED_GRACE_SECONDS * _NANOSECONDS:
        return "it is not fed; the log of the NATS server says why"
    return ""
