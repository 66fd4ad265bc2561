"""What a partition leaves on its node when the next report of it comes from another one."""

from __future__ import annotations

from paddlewheel.contracts.generated.cache_v1 import NodeStatus, StagedElsewhere

UPLOAD_SECONDS, UNMOUNT_SECONDS, LAST_WORD_SECONDS = 600, 60, 60
"""What an agent that ends gets where pods write to the cache first, one after the other: to upload what they
have written, for the mount to end, which may write more, and to tell that nothing is left."""


def left_on_node(last: NodeStatus) -> StagedElsewhere | None:
    """By its last report from there; None for nothing. An agent that ends in order says last that it is not
    mounted any more. Of one that does not, pods may have written after the report, where they write to the
    cache first."""
    is_unknown = last.staged_unknown or (last.mounted and last.writeback)
    if not (last.staged_bytes or is_unknown):
        return None
    return StagedElsewhere(node=last.node, staged_bytes=last.staged_bytes, staged_unknown=is_unknown)


def has_writes(left: StagedElsewhere) -> bool:
    """Or may have some: reports also name nodes with nothing, for who has missed the last word from there."""
    return bool(left.staged_bytes or left.staged_unknown)
