"""Finds free ports."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from typing import Final

_RANGE: Final = range(12_000, 22_000)
"""Below the kernel's ephemeral ports (from 32,768), so that no outgoing connection takes a port before the
caller listens on it, nor the port 10,000 above, which some servers also use."""


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that are currently unused.

    Raises:
        OSError: not enough ports are free.
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
