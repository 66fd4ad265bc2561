"""Reading raw objects, and references to them; the pure readers are in `paddlewheel.contracts.objects`."""

from __future__ import annotations

from typing import Any

from paddlewheel.contracts.objects import (
    controller_of,
    controller_uid,
    generation_of,
    is_deleting,
    key_of,
    labels_of,
    uid_of,
    version_of,
)
from paddlewheel.kube.ports import Object, Resource

__all__ = [
    "controller_of",
    "controller_uid",
    "generation_of",
    "is_deleting",
    "key_of",
    "labels_of",
    "owner_reference",
    "uid_of",
    "version_of",
    "without_managed_fields",
]


def owner_reference(owner: Object, resource: Resource) -> dict[str, Any]:
    """For `metadata.ownerReferences` of a child that `owner` controls."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def without_managed_fields(obj: Object) -> Object:
    """The same object, changed in place: without the record of who set which field, which nobody here reads.

    It is up to half of an object. An update that lacks it leaves it on the server as it is.
    """
    obj.get("metadata", {}).pop("managedFields", None)
    return obj
