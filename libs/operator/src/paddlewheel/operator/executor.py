"""Executes the actions of a plan.

Every action is tried. A failed action has its own backoff and hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import is_controlled_by
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, PaddlewheelError, Permanent, Retry
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import Cluster, Object, Resource
from paddlewheel.operator.concurrency import gather_bounded
from paddlewheel.operator.domain.plan import Action, Applied, ChildRef, Create, Delete, Patch, Trouble, Verb
from paddlewheel.operator.failures import Failures, Owner

FIRST_BATCH = 16
"""Number of actions of a group in the first batch. The next batch follows only if one of them succeeds."""

_VERBS: dict[type, Verb] = {Create: "create", Patch: "patch", Delete: "delete"}


@dataclass(frozen=True)
class Refusal:
    """Why an existing object of the wanted name is not ours. `message` includes what to do."""

    reason: Reason
    message: str


Claim = Callable[[str, Object, str], Refusal | None]
"""(kind, found object, uid of the owner) -> None if the owner may use the object as its child. Raises Retry
for an object that will be gone soon."""


def claim_controlled(kind: str, found: Object, owner_uid: str) -> Refusal | None:
    """Accept only an object that the owner controls."""
    if is_controlled_by(found, owner_uid):
        return None
    message = f"this {kind} exists and belongs to another object; delete or rename it"
    return Refusal(Reason.OWNED_BY_ANOTHER, message)


class Copies(Protocol):
    """A copy of the objects of one kind, for example a watched copy."""

    def wrote(self, obj: Object) -> None:
        """Apply the object from the response to an own write."""
        ...

    def deleting(self, key: Key, uid: str, *, vanishes: bool = False) -> None:
        """Record that the API server accepted our deletion of this object."""
        ...


_Child = tuple[Verb, str, Key]


class Executor:
    """Creates, patches and deletes children.

    Args:
        resources: the place of each kind in the API.
        stores: copies by kind. They are updated with the responses of the API server.
        claim: decides whether an existing object of a wanted name may be used.
    """

    def __init__(
        self,
        cluster: Cluster,
        resources: Mapping[str, Resource],
        stores: Mapping[str, Copies],
        clock: Clock,
        claim: Claim = claim_controlled,
    ) -> None:
        self._cluster = cluster
        self._resources = resources
        self._stores = stores
        self._clock = clock
        self._claim = claim
        self._failures: Failures[_Child] = Failures(clock)

    async def apply(self, owner: Owner, actions: Iterable[Action]) -> Applied:
        """Execute all actions that are due. A failure of a child is returned, not raised."""
        wanted, began = list(actions), self._clock.monotonic()
        # A failed action that is no longer wanted needs no retry.
        self._failures.retain(owner.uid, map(_child, wanted))
        children: list[ChildRef] = []
        troubles: list[Trouble] = []
        for group in _groups(wanted):
            troubled = {t.kind for t in troubles}
            ready = [action for action in group if not troubled.intersection(action.needs)]
            for outcome in await self._all(owner, ready, began):
                if isinstance(outcome, Trouble):
                    troubles.append(outcome)
                elif outcome is not None:
                    children.append(outcome)
        retry_after = self._retry_after(owner, troubles) if troubles else None
        return Applied(tuple(c.kind for c in children), tuple(troubles), retry_after, tuple(children))

    def forget(self, owner_uid: str) -> None:
        """Forget the failures of an owner that is gone."""
        self._failures.retain(owner_uid, ())

    async def _all(
        self, owner: Owner, actions: list[Action], began: float
    ) -> list[ChildRef | Trouble | None]:
        """The outcomes of a group.

        When all actions of a batch fail, the rest is not tried in this pass: a quota or a webhook that
        refuses the whole batch would refuse the rest, too.
        """
        outcomes: list[ChildRef | Trouble | None] = []
        for batch in _batches(actions):
            done = await gather_bounded(self._one(owner, action, began) for action in batch)
            outcomes += done
            if all(isinstance(outcome, Trouble) for outcome in done):
                break
        return outcomes

    async def _one(self, owner: Owner, action: Action, began: float) -> ChildRef | Trouble | None:
        """The created child, a failure, or None for another action that succeeded."""
        child = _child(action)
        if trouble := self._failures.waiting(owner, child, began):
            return trouble
        try:
            done = await self._perform(owner, action)
        except (Retry, Permanent, Conflict, NotFound, AlreadyExists) as error:
            # The wait starts with the pass, so that children that fail together are retried together.
            return self._failures.hold(owner, child, _trouble(child, error), began)
        self._failures.release(owner.uid, child)
        return done

    async def _perform(self, owner: Owner, action: Action) -> ChildRef | None:
        match action:
            case Create():
                return await self._create(owner, action)
            case Patch():
                await self._patch(action)
            case Delete():
                await self._cluster.delete(self._resources[action.kind], action.key, uid=action.uid)
                if store := self._stores.get(action.kind):
                    store.deleting(action.key, action.uid, vanishes=action.vanishes)
        return None

    async def _create(self, owner: Owner, action: Create) -> ChildRef:
        resource = self._resources[action.kind]
        try:
            answer = await self._cluster.create(resource, action.render())
        except AlreadyExists:
            answer = await self._cluster.get(resource, action.key)
            if refusal := self._claim(action.kind, answer, owner.uid):
                raise Permanent(refusal.reason, refusal.message) from None
        self._wrote(action.kind, answer)
        return ChildRef(action.kind, action.key, uid_of(answer))

    async def _patch(self, action: Patch) -> None:
        resource, patch = self._resources[action.kind], action.patch
        if action.uid:
            patch = {**patch, "metadata": {**patch.get("metadata", {}), "uid": action.uid}}
        try:
            answer = await self._cluster.patch(resource, action.key, patch, subresource=action.subresource)
        except NotFound:
            return
        except (Permanent, Conflict):
            if action.uid and uid_of(await self._cluster.get(resource, action.key)) != action.uid:
                return
            raise
        self._wrote(action.kind, answer)

    def _wrote(self, kind: str, answer: Object) -> None:
        if store := self._stores.get(kind):
            store.wrote(answer)

    def _retry_after(self, owner: Owner, troubles: Iterable[Trouble]) -> float:
        """Seconds until the first retry of the troubles of this pass.

        Actions that were skipped after a failed batch are tried with the retry of that batch. There is no
        entry if the owner was forgotten meanwhile, because another replica has taken it over.
        """
        failed = ((trouble.verb, trouble.kind, trouble.key) for trouble in troubles)
        return self._failures.retry_after(owner.uid, failed) or 0.0


def _child(action: Action) -> _Child:
    return _VERBS[type(action)], action.kind, action.key


def _batches(actions: Sequence[Action]) -> Iterator[Sequence[Action]]:
    """Batches of doubling size, so that a large group needs few batches."""
    start, size = 0, FIRST_BATCH
    while start < len(actions):
        yield actions[start : start + size]
        start, size = start + size, size * 2


def _groups(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """Groups of adjacent actions with the same verb and kind."""
    for _, group in groupby(actions, key=lambda a: (type(a), a.kind)):
        yield list(group)


def _trouble(child: _Child, error: PaddlewheelError) -> Trouble:
    verb, kind, key = child
    reason = error.reason if isinstance(error, Retry | Permanent) else type(error).__name__
    message = error.message if isinstance(error, Retry | Permanent) else str(error)
    return Trouble(verb, kind, key, reason, message or reason, isinstance(error, Permanent))
