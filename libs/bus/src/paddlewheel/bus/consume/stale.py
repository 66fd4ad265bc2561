"""Detects facts that are older than what a consumer has already handled of the same object."""

from __future__ import annotations

from collections import OrderedDict

from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.subjects import parse_event_subject

REMEMBERED = 16384
"""Objects whose newest version is remembered; the least recently handled is forgotten first."""

_LONGEST = 40

Version = tuple[int, str]


class NewestVersions:
    """The newest resource version handled of each object, of the last `bound` objects; 0 = judges nothing.

    It is kept in this process only: after a restart, or in another replica, an old fact may be handled again,
    so handlers must be idempotent.
    """

    def __init__(self, bound: int = REMEMBERED) -> None:
        self._bound = bound
        self._newest: OrderedDict[tuple[str, str], Version] = OrderedDict()

    def is_stale(self, event: Event) -> bool:
        """A newer one was handled. The same version is not stale, nor is one that cannot be compared."""
        object_, version = _judged(event)
        newest = self._newest.get(object_)
        return version is not None and newest is not None and version < newest

    def handled(self, event: Event) -> None:
        """Its effect is done."""
        object_, version = _judged(event)
        if version is None:
            return
        self._newest[object_] = max(version, self._newest.pop(object_, version))
        if len(self._newest) > self._bound:
            self._newest.popitem(last=False)


def _judged(event: Event) -> tuple[tuple[str, str], Version | None]:
    place = parse_event_subject(event.subject)
    refs = (value for _, value in event.data if isinstance(value, ObjectRef))
    about = next((ref for ref in refs if ref.uid == place.uid), None)
    return (place.entity, place.uid), _version(about.resource_version) if about else None


def _version(text: str) -> Version | None:
    """Kubernetes declares versions of digits comparable, as whole numbers; others are opaque."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST):
        return None
    digits = text.lstrip("0")
    return len(digits), digits
