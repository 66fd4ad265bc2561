"""Carrying out a plan's actions: every one is tried, a failed one backs off by itself and hides no other."""

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
"""Actions of a group that are tried before it is asked whether any succeeds."""

_VERBS: dict[type, Verb] = {Create: "create", Patch: "patch", Delete: "delete"}


@dataclass(frozen=True)
class Refusal:
    """Why a child of the wanted name is not ours. `message` names the remedy."""

    reason: Reason
    message: str


Claim = Callable[[str, Object, str], Refusal | None]
"""(kind, found object, uid of the owner) -> None when the owner may treat the object as its own child."""


def claim_controlled(kind: str, found: Object, owner_uid: str) -> Refusal | None:
    """Only what the owner controls is its own."""
    if is_controlled_by(found, owner_uid):
        return None
    message = f"this {kind} exists and belongs to another object; delete or rename it"
    return Refusal(Reason.OWNED_BY_ANOTHER, message)


class Copies(Protocol):
    """What is remembered of one kind, such as a watched copy."""

    def wrote(self, obj: Object) -> None:
        """The API server answered one of our writes with this object."""
        ...

    def deleting(self, key: Key, uid: str, *, vanishes: bool = False) -> None:
        """The API server accepted our delete of this very object."""
        ...


_Child = tuple[Verb, str, Key]


class Executor:
    """Creates, patches and deletes children.

    Args:
        resources: where each kind lives in the API.
        stores: copies, by kind; they take in what the API server answers.
        claim: decides about an object that exists already under a wanted name.
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
        """Try everything that is due; never raises for a child."""
        wanted, began = list(actions), self._clock.monotonic()
        # A failed action that is not wanted any more needs no retry.
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
        """The owner is gone."""
        self._failures.retain(owner_uid, ())

    async def _all(
        self, owner: Owner, actions: list[Action], began: float
    ) -> list[ChildRef | Trouble | None]:
        """Outcomes of a group. Once all of a batch have failed, the rest is not tried in this pass: what
        refuses so many, a quota or a webhook, would refuse them too."""
        outcomes: list[ChildRef | Trouble | None] = []
        for batch in _batches(actions):
            done = await gather_bounded(self._one(owner, action, began) for action in batch)
            outcomes += done
            if all(isinstance(outcome, Trouble) for outcome in done):
                break
        return outcomes

    async def _one(self, owner: Owner, action: Action, began: float) -> ChildRef | Trouble | None:
        """The child that was created, a failure, or None for another action that succeeded."""
        child = _child(action)
        if trouble := self._failures.waiting(owner, child, began):
            return trouble
        try:
            done = await self._perform(owner, action)
        except (Retry, Permanent, Conflict, NotFound, AlreadyExists) as error:
            # Counted from the beginning of the pass: children that fail together are tried again together.
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
            answer = await self._cluster.create(resource, dict(action.manifest))
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
        """Of what failed in this pass: what was not tried behind a failed batch is due with that batch. The
        owner may have been forgotten meanwhile: its share has moved to another replica."""
        failed = ((trouble.verb, trouble.kind, trouble.key) for trouble in troubles)
        return self._failures.retry_after(owner.uid, failed) or 0.0


def _child(action: Action) -> _Child:
    return _VERBS[type(action)], action.kind, action.key


def _batches(actions: Sequence[Action]) -> Iterator[Sequence[Action]]:
    """Of doubling size, so that a large group needs few rounds."""
    start, size = 0, FIRST_BATCH
    while start < len(actions):
        yield actions[start : start + size]
        start, size = start + size, size * 2


def _groups(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """Neighbouring actions of one verb and kind."""
    for _, group in groupby(actions, key=lambda a: (type(a), a.kind)):
        yield list(group)


def _trouble(child: _Child, error: PaddlewheelError) -> Trouble:
    verb, kind, key = child
    reason = error.reason if isinstance(error, Retry | Permanent) else type(error).__name__
    message = error.message if isinstance(error, Retry | Permanent) else str(error)
    return Trouble(verb, kind, key, reason, message or reason, isinstance(error, Permanent))
