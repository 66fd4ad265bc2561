"""Finding ports."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from typing import Final

_RANGE: Final = range(12_000, 22_000)
"""Below those the kernel gives to outgoing connections (from 32,768): none of them takes a port between
finding and listening; nor its twin 10,000 above, which some servers want."""


def free_ports(count: int) -> list[int]:
    """Loopback ports nobody listens on just now, all different.

    Raises:
        OSError: hardly any port is free.
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
    raise OSError(f"{count} free ports are wanted between {_RANGE.start} and {_RANGE.stop}")
