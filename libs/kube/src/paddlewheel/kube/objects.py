"""Functions for raw objects. Those without I/O types are in `paddlewheel.contracts.objects`."""

from __future__ import annotations

from typing import Any

from paddlewheel.contracts.objects import (
    controller_id,
    controller_of,
    controller_uid,
    generation_of,
    id_of,
    is_deleting,
    key_of,
    labels_of,
    uid_of,
    version_of,
)
from paddlewheel.kube.ports import Object, Resource

__all__ = [
    "controller_id",
    "controller_of",
    "controller_uid",
    "generation_of",
    "id_of",
    "is_deleting",
    "key_of",
    "labels_of",
    "owner_reference",
    "uid_of",
    "version_of",
    "without_managed_fields",
]


def owner_reference(owner: Object, resource: Resource) -> dict[str, Any]:
    """An entry for `metadata.ownerReferences` of a child that `owner` controls."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def without_managed_fields(obj: Object) -> Object:
    """The same object, changed in place: `metadata.managedFields` is removed.

    No code here reads managedFields, which can be half of an object. An update without it does not change it
    on the server.
    """
    obj.get("metadata", {}).pop("managedFields", None)
    return obj
