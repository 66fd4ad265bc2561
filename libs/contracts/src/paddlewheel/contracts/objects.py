"""Functions that read fields of raw Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddlewheel.contracts.keys import Key

Object = Mapping[str, Any]


def key_of(obj: Object) -> Key:
    """The namespace and name of the object."""
    meta = obj["metadata"]
    return Key(meta.get("namespace", ""), meta["name"])


def uid_of(obj: Object) -> str:
    """`metadata.uid`, "" when unset."""
    return str(obj["metadata"].get("uid", ""))


def version_of(obj: Object) -> str:
    """`metadata.resourceVersion`, "" when unset."""
    return str(obj["metadata"].get("resourceVersion", ""))


def generation_of(obj: Object) -> int:
    """`metadata.generation`, 0 when unset."""
    return int(obj["metadata"].get("generation", 0))


def labels_of(obj: Object) -> Mapping[str, str]:
    """`metadata.labels`."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Object) -> Mapping[str, str]:
    """`metadata.annotations`."""
    return obj["metadata"].get("annotations") or {}


def finalizers_of(obj: Object) -> tuple[str, ...]:
    """`metadata.finalizers`."""
    return tuple(obj["metadata"].get("finalizers") or ())


def deleted_at(obj: Object) -> str:
    """`metadata.deletionTimestamp`, "" unless the object is being deleted."""
    return str(obj["metadata"].get("deletionTimestamp") or "")


def created_at(obj: Object) -> str:
    """`metadata.creationTimestamp`, "" when absent."""
    return str(obj["metadata"].get("creationTimestamp") or "")


def spec_of(obj: Object) -> Mapping[str, Any]:
    """`spec`, {} when absent."""
    return obj.get("spec") or {}


def status_of(obj: Object) -> Mapping[str, Any]:
    """`status`, {} when absent."""
    return obj.get("status") or {}


def is_deleting(obj: Object) -> bool:
    """Whether the object is being deleted, and waits for finalizers or a grace period."""
    return "deletionTimestamp" in obj["metadata"]


def controller_of(obj: Object) -> Mapping[str, Any] | None:
    """The owner reference with `controller: true`."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def controller_uid(obj: Object) -> list[str]:
    """An index function for informers: the uid of the object's controlling owner."""
    owner = controller_of(obj)
    return [str(owner["uid"])] if owner else []


def controller_id(obj: Object) -> list[str]:
    """An index function for informers: the `id_of` of the object's controlling owner.

    Owners are in the namespace of the object. The uid alone would not do: an owner reference of an object in
    another namespace can contain any uid.
    """
    return [_id(obj, uid) for uid in controller_uid(obj)]


def id_of(obj: Object) -> str:
    """`<namespace>/<uid>` of the object."""
    return _id(obj, uid_of(obj))


def _id(obj: Object, uid: str) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{uid}"


def is_controlled_by(obj: Object, owner_uid: str) -> bool:
    """Whether the object's controlling owner has this uid."""
    return controller_uid(obj) == [owner_uid]
