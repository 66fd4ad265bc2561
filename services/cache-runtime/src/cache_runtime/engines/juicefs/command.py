"""A command of the JuiceFS client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """Arguments after the program's name, and environment variables to add.

    Args:
        is_confined: runs in the cell, where its paths are.
    """

    args: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    is_confined: bool = False

    def __repr__(self) -> str:
        """Without addresses, which may have keys."""
        return f"Command({' '.join(arg for arg in self.args[:3] if '://' not in arg)} ...)"
