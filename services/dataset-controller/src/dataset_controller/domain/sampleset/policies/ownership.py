"""Objects of our children's names that are not ours are refused, never used, never changed."""

from __future__ import annotations

from dataset_controller.domain.invalid import Invalid
from dataset_controller.domain.names import OWNER_ANNOTATION
from dataset_controller.domain.objects import Object, annotations_of, is_owned, key_of
from dataset_controller.domain.sampleset.model import Children

SHORT = {"PersistentVolume": "PV", "PersistentVolumeClaim": "PVC"}


def is_ours(obj: Object, uid: str) -> bool:
    """Owned by the set of this uid: by owner reference, or by annotation where there can be none."""
    if key_of(obj).namespace:
        return is_owned(obj, uid)
    return annotations_of(obj).get(OWNER_ANNOTATION) == uid


def foreign(kind: str, obj: Object) -> Invalid:
    """The refusal of an object that somebody else made."""
    return Invalid(
        f"Error{SHORT.get(kind, kind)}AlreadyExist",
        f"{kind} {key_of(obj)} exists and is not of this SampleSet; delete it or rename the set",
    )


def refuse_foreign(children: Children, uid: str) -> None:
    """Check all children that are seen; those without our label are met when they are to be created.

    Raises:
        Invalid: `Error<Kind>AlreadyExist` for the first that somebody else made.
    """
    named = {
        "PersistentVolume": children.volume,
        "PersistentVolumeClaim": children.claim,
        "Secret": children.secret,
        "Service": children.service,
        "StatefulSet": children.stateful_set,
    }
    for kind, obj in named.items():
        if obj is not None and not is_ours(obj, uid):
            raise foreign(kind, obj)


def ours(children: Children, uid: str) -> Children:
    """Only the children that are the set's own: what a deletion may touch."""

    def mine(obj: Object | None) -> Object | None:
        return obj if obj is not None and is_ours(obj, uid) else None

    return Children(
        mine(children.volume),
        mine(children.claim),
        mine(children.secret),
        mine(children.service),
        mine(children.stateful_set),
    )
