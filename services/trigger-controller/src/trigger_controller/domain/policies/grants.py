"""Which namespaces may follow an object store: its notifications carry the keys of everybody's objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from paddlewheel.contracts.crds import TriggerSpec

ALL = "*"

Grants = Mapping[str, Collection[str]]
"""Namespaces by source; `*` is every namespace."""


def find_missing_grant(spec: TriggerSpec, namespace: str, grants: Grants) -> str:
    """What the operator has to grant, as a sentence; "" when nothing is missing."""
    store = spec.when.object_store if spec.when else None
    if store is None or {namespace, ALL} & set(grants.get(store.source, ())):
        return ""
    return (
        f"source {store.source} is not granted to namespace {namespace}: the operator has to add the"
        " namespace under triggerController.webhook.sources of the chart"
    )
