"""The bytes that all requests of a replica may hold together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paddle_runtime.domain.model import busy


class Budget:
    """Counts what requests hold."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes."""
        return self._held

    @contextmanager
    def share(self) -> Iterator[Share]:
        """The memory of one request, from the first byte of its body until its answer is written."""
        share = Share(self)
        try:
            yield share
        finally:
            share.hold(0)

    def check(self, size: int) -> None:
        """Raises Refused: there is no room for so many bytes more."""
        if self._held + size > self._most:
            raise busy(f"requests hold {self._held} of {self._most} bytes already: try again")

    def change(self, size: int) -> None:
        """Bytes more, or less, are held."""
        self._held += size


class Share:
    """The memory that one request holds."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._held = 0

    def check(self, size: int) -> None:
        """Raises Refused: there is no room for so many bytes more."""
        self._budget.check(size)

    def take(self, size: int) -> None:
        """Hold so many bytes more. Raises Refused."""
        self._budget.check(size)
        self.hold(self._held + size)

    def hold(self, size: int) -> None:
        """Hold so many bytes instead; never refused, for they are there, but it keeps new requests out."""
        self._budget.change(size - self._held)
        self._held = size
