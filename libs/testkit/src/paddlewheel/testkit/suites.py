"""Selects the rows of a parametrized test for the short suite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def long_after(first: int, rows: Iterable[Any]) -> list[Any]:
    """The rows as pytest takes them; those after the first few are in the long suite alone.

    Args:
        rows: tuples for several parameters, other values for one.
    """
    found = [row if isinstance(row, tuple) else (row,) for row in rows]
    return [
        *(pytest.param(*row) for row in found[:first]),
        *(pytest.param(*row, marks=pytest.mark.long) for row in found[first:]),
    ]
