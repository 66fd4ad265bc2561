"""Which block of ports a job on the hosts' network owns."""

from __future__ import annotations

import hashlib

from job_controller.domain import names
from job_controller.domain.model import Job, Observed, PortClaim
from paddlewheel.contracts.crds import Network

_HIGHEST = 65535


def base_port(seen: Observed, port_range: tuple[int, int]) -> int | None:
    """The job's base port; None when every block of the range is taken."""
    job = seen.job
    if job.network is not Network.HOST:
        return names.BASE_PORT
    own = parse_port(job.annotations.get(names.ANNOTATION_HOST_PORT, ""))
    if own is not None and (seen.pods or not _is_lost(job, own, seen.port_claims)):
        return own
    return _free_block(job, seen.port_claims, port_range)


def parse_port(text: str) -> int | None:
    """A usable first port of a block, else None."""
    # An annotation may hold more digits than `int` takes.
    if not text.isdecimal() or len(text) > len(str(_HIGHEST)):
        return None
    port = int(text)
    return port if 0 < port <= _HIGHEST - names.PORTS_PER_POD + 1 else None


def _is_lost(job: Job, port: int, claims: tuple[PortClaim, ...]) -> bool:
    """Two jobs drew the same block at the same moment: the younger one draws again."""
    mine = (job.created_at, job.uid)
    return any(_overlap(port, c.first_port) and (c.created_at, c.uid) < mine for c in claims)


def _free_block(job: Job, claims: tuple[PortClaim, ...], port_range: tuple[int, int]) -> int | None:
    """Start at a place given by the uid, so that jobs rarely try for the same block."""
    low, high = port_range
    blocks = range(low + names.PORTS_PER_POD, high - names.PORTS_PER_POD + 1, names.PORTS_PER_POD)
    if not blocks:
        return None
    start = int.from_bytes(hashlib.sha256(job.uid.encode()).digest()[:8], "big") % len(blocks)
    taken = [c.first_port for c in claims]
    around = (blocks[(start + step) % len(blocks)] for step in range(len(blocks)))
    return next((b for b in around if not any(_overlap(b, t) for t in taken)), None)


def _overlap(one: int, other: int) -> bool:
    return abs(one - other) < names.PORTS_PER_POD
