"""JSON merge patches (RFC 7396): the difference of two objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that turns `old` into `new`; {} when they are equal.

    A list is replaced as a whole. `new` must not contain nulls: in a merge patch null means removal.
    """
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        if name not in old:
            patch[name] = value
        elif old[name] != value:
            patch[name] = _difference(old[name], value)
    return patch


def _difference(old: Any, new: Any) -> Any:
    both = isinstance(old, Mapping) and isinstance(new, Mapping)
    return merge_patch(old, new) if both else new
