"""Checks whether a namespace may follow an object store, whose notifications contain the keys of all its
objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from paddlewheel.contracts.crds import TriggerSpec

ALL = "*"

Grants = Mapping[str, Collection[str]]
"""Name of a source to the namespaces that may follow it; `*` means all."""


def find_missing_grant(spec: TriggerSpec, namespace: str, grants: Grants) -> str:
    """The message about a missing grant; "" if the namespace may follow the source."""
    store = spec.when.object_store if spec.when else None
    if store is None or {namespace, ALL} & set(grants.get(store.source, ())):
        return ""
    return (
        f"source {store.source} is not granted to namespace {namespace}: the operator has to add the"
        " namespace under triggerController.webhook.sources of the chart"
    )
