"""Parses each version of an object once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import Object

T = TypeVar("T")


class Memo(Generic[T]):
    """Remembers the parsed form of the last version of each object, by uid.

    A store replaces a changed object and never changes it in place, so an identical object has the same
    parsed form. The owner of the memo calls `forget` for objects that are gone.
    """

    def __init__(self, parse: Callable[[Object], T]) -> None:
        self._parse = parse
        self._parsed: dict[str, tuple[Any, T]] = {}

    def __len__(self) -> int:
        return len(self._parsed)

    def __call__(self, obj: Object) -> T:
        """The parsed form of the object. Errors of `parse` are not caught."""
        uid = uid_of(obj)
        known = self._parsed.get(uid)
        if known is not None and known[0] is obj:
            return known[1]
        parsed = self._parse(obj)
        self._parsed[uid] = (obj, parsed)
        return parsed

    def forget(self, obj: Object) -> None:
        """Forget an object that is gone."""
        self._parsed.pop(uid_of(obj), None)
