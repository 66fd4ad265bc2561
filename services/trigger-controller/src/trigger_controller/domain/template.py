"""Checks the names `$(...)` in templates, and replaces them by values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paddlewheel.contracts.base import write_time
from paddlewheel.contracts.crds.trigger import StatusGathered, When

_PLACE = re.compile(r"(?<!\$)\$\((event|object|store|trigger)\.([A-Za-z]+)\)")
_COMMON = frozenset({"event.id", "event.type", "event.time", "event.count", "trigger.name"})
_OF_FACTS = _COMMON | {"object.name", "object.namespace", "object.uid"}
_OF_STORES = _COMMON | {"store.source", "store.bucket", "store.key"}

Values = Mapping[str, str]


def find_problems(template: Any, when: When) -> tuple[str, ...]:
    """Errors in the template's names. Each message describes what to do."""
    known = _known(when)
    used = {m[0]: f"{m[1]}.{m[2]}" for text in _texts(template) for m in _PLACE.finditer(text)}
    wrong = sorted(place for place, name in used.items() if name not in known)
    listed = ", ".join(f"$({name})" for name in sorted(known))
    return tuple(f"spec.create: {place} has no value in this trigger; use one of {listed}" for place in wrong)


def _known(when: When) -> frozenset[str]:
    if when.schedule is not None:
        return _COMMON
    return _OF_STORES if when.object_store is not None else _OF_FACTS


def values_of(trigger: str, gathered: StatusGathered) -> Values:
    """Name to value, for all names."""
    event = gathered.newest
    return {
        "event.id": event.id,
        "event.type": event.type,
        "event.time": write_time(event.time),
        "event.count": str(gathered.events),
        "trigger.name": trigger,
        "object.name": event.object_name,
        "object.namespace": event.object_namespace,
        "object.uid": event.object_uid,
        "store.source": event.store_source,
        "store.bucket": event.store_bucket,
        "store.key": event.store_key,
    }


def escaped(values: Values) -> Values:
    """The values for a template in which Kubernetes itself replaces $(NAME). They are escaped, so that
    Kubernetes does not replace names in them: other users choose the values, such as keys of objects."""
    return {name: value.replace("$(", "$$(") for name, value in values.items()}


def fill(template: Any, values: Values) -> Any:
    """Replace all names in one pass, so that names in values are not replaced.

    `$$(...)` and names that are not in `values` are kept.
    """
    return _mapped(template, lambda text: _PLACE.sub(lambda m: values.get(f"{m[1]}.{m[2]}", m[0]), text))


def _mapped(node: Any, replace: Callable[[str], str]) -> Any:
    if isinstance(node, str):
        return replace(node)
    if isinstance(node, Mapping):
        return {key: _mapped(value, replace) for key, value in node.items()}
    return [_mapped(item, replace) for item in node] if isinstance(node, list) else node


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping | list):
        for item in node.values() if isinstance(node, Mapping) else node:
            yield from _texts(item)
