"""Objects by key, with secondary indexes. The cost of a change does not depend on the number of objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import Object, Objects

Keys = list[Key]
Values = list[str]
Index = Callable[[Object], Values]


class IndexedObjects:
    """A dictionary of objects in insertion order.

    Args:
        indexes: index functions by name. Each returns the values under which `by_index` finds an object.
    """

    def __init__(self, indexes: Mapping[str, Index] | None = None) -> None:
        self._functions = dict(indexes or {})
        self._objects: dict[Key, Object] = {}
        self._values: dict[str, dict[Key, Values]] = {name: {} for name in self._functions}
        self._indexes: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in self._functions}

    def get(self, key: Key) -> Object | None:
        """The object. None when it does not exist."""
        return self._objects.get(key)

    def keys(self) -> Keys:
        """All keys."""
        return list(self._objects)

    def list(self, namespace: str = "") -> Objects:
        """All objects, or all objects of one namespace."""
        if not namespace:
            return list(self._objects.values())
        return [obj for key, obj in self._objects.items() if key.namespace == namespace]

    def by_index(self, index: str, value: str) -> Objects:
        """Objects for which the named index function returned `value`."""
        return [self._objects[key] for key in self._indexes[index].get(value, ())]

    def count_by_index(self, index: str, value: str) -> int:
        """The number of objects that `by_index` returns. Takes constant time."""
        return len(self._indexes[index].get(value, ()))

    def put(self, key: Key, obj: Object) -> None:
        """Add an object, or replace it. A replaced object keeps its position in the order."""
        self._objects[key] = obj
        for name, function in self._functions.items():
            self._index(name, key, list(dict.fromkeys(function(obj))))

    def remove(self, key: Key) -> None:
        """Remove the object if it exists."""
        if self._objects.pop(key, None) is not None:
            for name in self._functions:
                self._index(name, key, [])

    def _index(self, name: str, key: Key, values: Values) -> None:
        """Replace the values of the object in one index."""
        index, old = self._indexes[name], self._values[name].pop(key, [])
        if values:
            self._values[name][key] = values
        if values == old:
            return
        for value in old:
            if value not in values:
                del index[value][key]
                if not index[value]:
                    del index[value]
        for value in values:
            index.setdefault(value, {})[key] = None
