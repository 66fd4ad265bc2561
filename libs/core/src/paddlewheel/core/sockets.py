"""Finds free local ports."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from typing import Final

_RANGE: Final = range(12_000, 22_000)
"""Candidate ports. Some servers also use the port 10,000 above their own. Both are below the ephemeral ports
of the kernel (from 32,768), so no outgoing connection can take them before the caller listens."""


def free_ports(count: int) -> list[int]:
    """Distinct ports of the loopback interface that are currently unused.

    Raises:
        OSError: too few ports are free.
    """
    with ExitStack() as probes:
        found: list[int] = []
        for port in random.SystemRandom().sample(_RANGE, len(_RANGE)):
            with suppress(OSError):
                probe = probes.enter_context(socket.socket())
                probe.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"cannot find {count} free ports between {_RANGE.start} and {_RANGE.stop}")
