"""Writes that a partition leaves on its node, not yet uploaded to the object store, when it moves to another
node.

They exist only with the mount option writeback, by which pods write to the cache of their node first.
"""

from __future__ import annotations

from paddlewheel.contracts.generated.cache_v1 import NodeStatus, StagedElsewhere

UPLOAD_SECONDS, UNMOUNT_SECONDS, LAST_WORD_SECONDS = 600, 60, 60
"""With writeback, seconds that an agent has for each step of its shutdown: to upload the writes of pods, to
unmount (which may write more), and to report that nothing is left."""


def left_on_node(last: NodeStatus) -> StagedElsewhere | None:
    """The writes that a partition has left on a node, by its last report from there; None if there are none.

    The last report of an agent that shuts down in order is that its mount has ended. If that report is
    missing, and writeback is on, pods may have written after the last report, so the number of bytes is
    unknown.
    """
    is_unknown = last.staged_unknown or (last.mounted and last.writeback)
    if not (last.staged_bytes or is_unknown):
        return None
    return StagedElsewhere(node=last.node, staged_bytes=last.staged_bytes, staged_unknown=is_unknown)


def has_writes(left: StagedElsewhere) -> bool:
    """Whether the node has such writes, or may have some.

    Agents also report nodes without writes, so that readers that have missed the last report from there know.
    """
    return bool(left.staged_bytes or left.staged_unknown)
