"""The block of ports that a job on the hosts' network owns."""

from __future__ import annotations

import hashlib

from job_controller.core import names
from job_controller.core.environment import parse_port
from job_controller.core.job import Job
from job_controller.core.model import Observed
from job_controller.core.parts import PortBlock, PortClaim


def claim_ports(seen: Observed, port_range: tuple[int, int]) -> PortBlock:
    """Claim first, check the claims of others, create pods later.

    When several jobs claim one block at the same time, the last job sees the claims of all others once the
    watch reports its own claim. The others may or may not, so each job that sees another claim leaves the
    block.
    """
    job = seen.job
    own = parse_port(job.annotations.get(names.ANNOTATION_HOST_PORT, ""))
    if own is not None and (seen.pods or seen.old_pods):
        return PortBlock(own)
    if own is not None and not _rivals(own, seen.port_claims):
        return PortBlock(own, is_firm=seen.is_reported)
    drawn = _free_block(job, own, seen.port_claims, port_range)
    if drawn is not None:
        return PortBlock(drawn, is_firm=False)
    return PortBlock(own if _is_oldest(job, own, seen.port_claims) else None, is_exhausted=True)


def _rivals(port: int, claims: tuple[PortClaim, ...]) -> tuple[PortClaim, ...]:
    return tuple(claim for claim in claims if _overlap(port, claim.first_port))


def _is_oldest(job: Job, own: int | None, claims: tuple[PortClaim, ...]) -> bool:
    """When several jobs claim the last block, the oldest stays, or each would wait for the others."""
    mine = (job.created_at, job.uid)
    return own is not None and all(mine < (c.created_at, c.uid) for c in _rivals(own, claims))


def _free_block(
    job: Job, left: int | None, claims: tuple[PortClaim, ...], port_range: tuple[int, int]
) -> int | None:
    """Start at a place given by the uid and by the block that the job leaves, so that jobs rarely try for the
    same block, nor again for the same next one."""
    low, high = port_range
    blocks = range(low + names.PORTS_PER_POD, high - names.PORTS_PER_POD + 1, names.PORTS_PER_POD)
    if not blocks:
        return None
    seed = f"{job.uid}/{left}" if left else job.uid
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % len(blocks)
    around = (blocks[(start + step) % len(blocks)] for step in range(len(blocks)))
    return next((block for block in around if not _rivals(block, claims)), None)


def _overlap(one: int, other: int) -> bool:
    return abs(one - other) < names.PORTS_PER_POD
