"""What every object of this service has that the API server stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import (
    Object,
    deleted_at,
    finalizers_of,
    generation_of,
    key_of,
    uid_of,
)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Base of `SampleSet` and `SampleJob`, each parsed once per version.

    Args:
        deleted_at: RFC 3339, "" unless it is being deleted.
    """

    obj: Object
    key: Key
    uid: str
    generation: int
    finalizers: tuple[str, ...]
    deleted_at: str


def parse_stored(obj: Object) -> dict[str, Any]:
    """Arguments of `Stored`."""
    return {
        "obj": obj,
        "key": key_of(obj),
        "uid": uid_of(obj),
        "generation": generation_of(obj),
        "finalizers": finalizers_of(obj),
        "deleted_at": deleted_at(obj),
    }
