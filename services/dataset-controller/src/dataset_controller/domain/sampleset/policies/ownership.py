"""Objects with a child's name that are not ours are refused: never used, changed or deleted."""

from __future__ import annotations

from dataset_controller.domain import names
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.sampleset.model import Children
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import (
    Object,
    annotations_of,
    controller_of,
    deleted_at,
    is_controlled_by,
    key_of,
    uid_of,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import Delete


def is_ours(obj: Object, uid: str) -> bool:
    """Owned by the set of this uid: by owner reference, or by annotation outside the set's namespace."""
    if controller_of(obj) is not None:
        return is_controlled_by(obj, uid)
    return annotations_of(obj).get(names.OWNER_ANNOTATION) == uid


def is_left_over(obj: Object, key: Key, uid: str) -> bool:
    """The object belongs to a former set of this key. Such a set is gone: the present one has another uid.

    Its finalizer was removed by force, so the set did not remove its objects in the release's namespace.

    Args:
        uid: the uid of the present set; "" without one.
    """
    annotations = annotations_of(obj)
    owner = annotations.get(names.OWNER_ANNOTATION)
    return annotations.get(names.SET_ANNOTATION) == str(key) and owner not in (None, uid)


def foreign(kind: str, obj: Object) -> Problem:
    """Refusal of an object that belongs to something else."""
    return Problem(
        Reason.OWNED_BY_ANOTHER,
        f"{kind} {key_of(obj)} exists and does not belong to this SampleSet; delete it or rename the set",
    )


def find_foreign(children: Children, uid: str) -> Problem | None:
    """The first object that belongs to something else.

    An object without our label is found only when it is to be created.
    """
    others = ((kind, obj) for kind, obj in _named(children) if not is_ours(obj, uid))
    return next((foreign(kind, obj) for kind, obj in others), None)


def remove_left_over(children: Children, key: Key, uid: str) -> tuple[Delete, ...]:
    """Deletes what a former set of this key has left in the release's namespace."""
    return tuple(
        Delete(kind, key_of(obj), uid_of(obj))
        for kind, obj in _named(children)
        if is_left_over(obj, key, uid) and not deleted_at(obj)
    )


def _named(children: Children) -> list[tuple[str, Object]]:
    """The existing children with their kinds."""
    found = (
        (names.VOLUME, children.volume),
        (names.CLAIM, children.claim),
        (names.SECRET, children.secret),
        (names.SECRET, children.volume_secret),
        (names.SERVICE_KIND, children.service),
        (names.STATEFUL_SET, children.stateful_set),
    )
    return [(kind, obj) for kind, obj in found if obj is not None]


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
