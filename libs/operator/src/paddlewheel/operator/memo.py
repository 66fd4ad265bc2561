"""Parsing each object once per version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import Object

T = TypeVar("T")


class Memo(Generic[T]):
    """Remembers the parsed form of the last version of each object, by uid.

    A store replaces an object when it changes and never changes it in place, so the same object has the same
    parsed form. Whoever owns the memo forgets the objects that are gone.
    """

    def __init__(self, parse: Callable[[Object], T]) -> None:
        self._parse = parse
        self._parsed: dict[str, tuple[Any, T]] = {}

    def __len__(self) -> int:
        return len(self._parsed)

    def __call__(self, obj: Object) -> T:
        """The parsed form. Raises what `parse` raises."""
        uid = uid_of(obj)
        known = self._parsed.get(uid)
        if known is not None and known[0] is obj:
            return known[1]
        parsed = self._parse(obj)
        self._parsed[uid] = (obj, parsed)
        return parsed

    def forget(self, obj: Object) -> None:
        """The object is gone."""
        self._parsed.pop(uid_of(obj), None)
