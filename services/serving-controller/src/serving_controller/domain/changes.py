"""From children as they must be, and as they are, to actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import is_deleting, uid_of
from paddlewheel.operator.domain.plan import Action, Create, Delete, Patch
from serving_controller.domain import names
from serving_controller.domain.engines.port import Child
from serving_controller.domain.model import Children

Json = Any
LEADS = (names.ROUTE, names.KNATIVE_SERVICE)
"""Kinds that lead requests."""


def actions(namespace: str, wanted: Iterable[Child], found: Children) -> tuple[Action, ...]:
    """Create what is absent, correct what differs, and delete what is not wanted, in this order."""
    once = {(child.kind, child.name): child for child in reversed(tuple(wanted))}
    ordered = tuple(reversed(once.values()))
    changed = [action for child in ordered if (action := _applied(namespace, child, found)) is not None]
    unwanted = tuple(_deleted(namespace, once, found))
    # What requests are led to is left until they are led there no more.
    return (*changed, *(tuple(d for d in unwanted if d.kind in LEADS) or unwanted))


def _applied(namespace: str, child: Child, found: Children) -> Action | None:
    existing = found.get(child.kind, {}).get(child.name)
    if existing is None:
        return None if child.manifest is None else Create(child.kind, child.manifest)
    patch = difference(child.kept, existing)
    return Patch(child.kind, Key(namespace, child.name), patch, uid=uid_of(existing)) if patch else None


def _deleted(namespace: str, wanted: Mapping[tuple[str, str], Child], found: Children) -> Iterator[Delete]:
    for kind, children in found.items():
        for name, child in children.items():
            if kind != names.SLICE and (kind, name) not in wanted and not is_deleting(child):
                yield Delete(kind, Key(namespace, name), uid_of(child))


def difference(kept: Mapping[str, Json], found: Mapping[str, Json]) -> dict[str, Json]:
    """The merge patch that brings `found` to hold all of `kept`; what it has beside that is left alone."""
    patch: dict[str, Json] = {}
    for name, value in kept.items():
        other = found.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            if inner := difference(value, other):
                patch[name] = inner
        elif not _holds(value, other):
            patch[name] = value
    return patch


def _holds(wanted: Json, found: Json) -> bool:
    """Lists are compared item by item: the API server adds defaults to each."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return not difference(wanted, found)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_holds, wanted, found))
    return bool(wanted == found)
