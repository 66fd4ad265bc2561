"""Objects with a child's name that are not ours are refused: never used, changed or deleted."""

from __future__ import annotations

from dataset_controller.domain import names
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.sampleset.model import Children
from paddlewheel.contracts.objects import Object, annotations_of, is_controlled_by, key_of
from paddlewheel.contracts.reasons import Reason


def is_ours(obj: Object, uid: str) -> bool:
    """Owned by the set of this uid: by owner reference, or by annotation where there can be none."""
    if key_of(obj).namespace:
        return is_controlled_by(obj, uid)
    return annotations_of(obj).get(names.OWNER_ANNOTATION) == uid


def foreign(kind: str, obj: Object) -> Problem:
    """Refusal of an object that somebody else created."""
    return Problem(
        Reason.OWNED_BY_ANOTHER,
        f"{kind} {key_of(obj)} exists and does not belong to this SampleSet; delete it or rename the set",
    )


def find_foreign(children: Children, uid: str) -> Problem | None:
    """The first object that somebody else created.

    Those without our label are not seen here but when they are to be created.
    """
    named = (
        (names.VOLUME, children.volume),
        (names.CLAIM, children.claim),
        (names.SECRET, children.secret),
        (names.SECRET, children.volume_secret),
        (names.SERVICE_KIND, children.service),
        (names.STATEFUL_SET, children.stateful_set),
    )
    others = ((k, obj) for k, obj in named if obj is not None and not is_ours(obj, uid))
    return next((foreign(kind, obj) for kind, obj in others), None)


def ours(children: Children, uid: str) -> Children:
    """Only the set's own children: what a deletion may touch."""

    def mine(obj: Object | None) -> Object | None:
        return obj if obj is not None and is_ours(obj, uid) else None

    return Children(
        mine(children.volume),
        mine(children.claim),
        mine(children.secret),
        mine(children.service),
        mine(children.stateful_set),
        mine(children.volume_secret),
    )
