"""JSON merge patch (RFC 7396)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """A new value. Null removes, objects are merged, and any other value replaces. No argument is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged
