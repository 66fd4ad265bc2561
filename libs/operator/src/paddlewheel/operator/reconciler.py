"""One pass over one object, the same for every kind: observe, plan, apply, record, publish.

The pure functions `plan` and `conclude` of the kind make all decisions. The order of the steps matters: a
status is recorded before the facts that it declares are published, and a finalizer is removed after the last
fact was published.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar, cast

import structlog

from paddlewheel.contracts.announcements import Announcement, Announcements, parse_announcements
from paddlewheel.contracts.conditions import (
    RECONCILE_FAILED,
    Condition,
    Conditions,
    explain,
    parse_conditions,
    render_conditions,
    set_condition,
)
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.merge_patch import merge_patch
from paddlewheel.contracts.objects import deleted_at, finalizers_of
from paddlewheel.contracts.reasons import REASONS, Reason
from paddlewheel.contracts.stamps import seconds_stamp
from paddlewheel.control.controller import Result
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Conflict, NotFound, PaddlewheelError, Permanent
from paddlewheel.core.telemetry import traceparent
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import generation_of, key_of, uid_of, version_of
from paddlewheel.kube.ports import Cluster, Object, Resource
from paddlewheel.operator.domain.facts import FactTable
from paddlewheel.operator.domain.plan import Applied, KubernetesEvent, Plan, Status, earliest, shorten
from paddlewheel.operator.outbox import FactSource, Outbox, Republished

log = structlog.get_logger(__name__)


class Observed(Protocol):
    """The input of one decision."""

    @property
    def obj(self) -> Object:
        """The object itself, as the API server returned it."""
        ...

    @property
    def status(self) -> Any:
        """The parsed status of the object."""
        ...


O = TypeVar("O", bound=Observed)  # noqa: E741
S = TypeVar("S", bound=Status)
C = TypeVar("C")


class Kind(Protocol[O, S, C]):
    """The code of a service for one of its kinds. Only `observe` and `apply` do I/O."""

    @property
    def facts(self) -> FactTable[C]: ...

    async def observe(self, key: Key) -> O | None:
        """Everything that the decision depends on. None when the object is gone.

        Raises:
            Permanent: the object cannot be parsed. This is the only cause of Permanent.
        """
        ...

    def plan(self, seen: O, now: datetime) -> Plan[S]: ...

    async def apply(self, seen: O, todo: Plan[S]) -> Applied:
        """Execute the actions. A failure of a child is returned, not raised."""
        ...

    def conclude(self, seen: O, todo: Plan[S], applied: Applied, now: datetime) -> Plan[S]:
        """Add the outcome of the actions to the status and events."""
        ...

    def case(self, seen: O, status: S) -> C:
        """The input for rendering facts."""
        ...

    def recorded(self, seen: O, status: S) -> None:
        """Called after this status was written."""
        ...

    def forget(self, key: Key, uid: str) -> None:
        """Called after the object is gone."""
        ...


@dataclass(frozen=True)
class Outside:
    """The environment of a reconciler.

    Args:
        store: watched copy of the kind.
        source: name of the service, the `ce-source` of its facts.
        finalizer: the finalizer of the service on this kind. It is removed from a deleted object that cannot
            be parsed. "" keeps such an object: use it for a kind that has children without an owner
            reference, which nothing else removes.
    """

    resource: Resource
    store: Informer
    cluster: Cluster
    outbox: Outbox
    events: EventRecorder
    clock: Clock
    source: str
    finalizer: str = ""


class Reconciler(Generic[O, S, C]):
    """Brings objects of one kind to the state that their spec describes."""

    def __init__(self, kind: Kind[O, S, C], outside: Outside) -> None:
        self._kind = kind
        self._out = outside
        self._uids: dict[Key, str] = {}
        self._active: set[Key] = set()

    async def reconcile(self, key: Key) -> Result:
        """Make one full pass. A pass can be interrupted at any point and repeated.

        Raises:
            Retry, Conflict: the object itself must be read or written again.
            Permanent: the object cannot be parsed.
        """
        self._active.add(key)
        try:
            return await self._pass(key)
        except Permanent as error:
            await self._report_failure(key, *_shown(error))
            raise
        except PaddlewheelError:
            raise
        except Exception as error:
            message = f"{type(error).__name__}; the log of {self._out.source} has the traceback"
            await self._report_failure(key, Reason.INTERNAL_ERROR, message)
            raise
        finally:
            self._active.discard(key)

    async def _pass(self, key: Key) -> Result:
        try:
            seen = await self._kind.observe(key)
        except Permanent as error:
            await self._release_unread(key, error)
            return Result()
        if seen is None:
            self._forget(key)
            return Result()
        self._remember(key, uid_of(seen.obj))
        now = self._out.clock.now()
        todo = self._kind.plan(seen, now)
        obj = await self._prepare(seen.obj, todo)
        applied = await self._kind.apply(seen, todo)
        todo = self._kind.conclude(seen, todo, applied, now)
        return await self._finish(seen, obj, todo, applied)

    async def _finish(self, seen: O, obj: Object, todo: Plan[S], applied: Applied) -> Result:
        wanted: S = seen.status if todo.status is None else self._with_messages(seen, obj, todo.status)
        obj, recorded = await self._record(seen, obj, self._without_bug(obj, wanted))
        self._emit(obj, todo.events)
        source = self._source(obj, self._kind.case(seen, recorded))
        published = await self._out.outbox.publish(source, recorded.announcements)
        if todo.release is not None and (published.is_settled or todo.release_anyway):
            await self._patch_own(obj, {"metadata": dict(todo.release)})
            return Result()
        if todo.expiry is not None and published.is_settled:
            await self._expire(obj, todo.expiry)
            return Result()
        return Result(earliest(todo.requeue_after, applied.retry_after, published.retry_after))

    async def republish(self, key: Key, everything: bool = False) -> Republished:
        """Publish facts of the object again that the bus has lost.

        The object is not changed, and is only observed for facts that an older release has recorded without
        their messages. Raises Retry.
        """
        obj = self._out.store.get(key)
        if obj is None:
            return Republished()
        facts = _readable_facts(obj)
        seen = None if all(fact.payload for fact in facts) else await self._kind.observe(key)
        if seen is not None:
            # The kind may read values from its facts that are not in a base announcement.
            facts = seen.status.announcements
        source = self._source(obj, self._kind.case(seen, seen.status) if seen else None)
        return await self._out.outbox.republish(source, facts, everything=everything)

    def keep(self, owns: Callable[[Key], bool]) -> None:
        """Forget objects that belong to another replica now. Objects in a running pass are kept for now."""
        for key in [key for key in self._uids if key not in self._active and not owns(key)]:
            self._forget(key)

    async def _report_failure(self, key: Key, reason: str, message: str) -> None:
        """Write to the status of the object why a pass failed."""
        obj = self._out.store.get(key)
        if obj is None:
            return
        condition = Condition(RECONCILE_FAILED, "True", reason, shorten(message))
        conditions = _readable_conditions(obj)
        after = set_condition(conditions, _for(obj, condition), seconds_stamp(self._out.clock.now()))
        if after != conditions:
            status = {"conditions": render_conditions(after), **explain(after, ())}
            with suppress(PaddlewheelError):
                await self._patch_own(obj, {"status": status}, status=True)

    async def _release_unread(self, key: Key, error: Permanent) -> None:
        """Remove the finalizer of a deleted object that cannot be parsed. For others, raise `error`.

        The children of such an object are unknown. The garbage collector removes the children in its
        namespace by their owner references, the service the orphans elsewhere.
        """
        obj, finalizer = self._out.store.get(key), self._out.finalizer
        if obj is None or not deleted_at(obj) or finalizer not in finalizers_of(obj):
            raise error
        left = [name for name in finalizers_of(obj) if name != finalizer]
        await self._patch_own(obj, {"metadata": {"finalizers": left}})
        message = f"deleted without its last fact, because the object cannot be parsed: {error.message}"
        self._emit(obj, (KubernetesEvent("Warning", Reason.RELEASED_UNREAD, message),))

    async def _prepare(self, obj: Object, todo: Plan[S]) -> Object:
        if todo.metadata is not None:
            return await self._patch_own(obj, {"metadata": dict(todo.metadata)})
        if todo.verify:
            await self._verify(obj)
        return obj

    async def _verify(self, obj: Object) -> None:
        """Raise Conflict when the API server has another version than the cache."""
        key = key_of(obj)
        try:
            now = await self._out.cluster.get(self._out.resource, key)
        except NotFound as error:
            raise Conflict(f"{self._out.resource.kind} {key} is gone") from error
        if version_of(now) != version_of(obj):
            raise Conflict(f"{self._out.resource.kind} {key} has been modified")

    async def _record(self, seen: O, obj: Object, wanted: S) -> tuple[Object, S]:
        """Write the status with one patch, or without a patch if nothing changed.

        Returns:
            The object and its status as the API server has them now.
        """
        uid, outbox = uid_of(obj), self._out.outbox
        is_changed = wanted != seen.status
        if not is_changed and not outbox.is_confirmation_due(uid):
            return obj, wanted
        confirmed: S = _with(wanted, announcements=outbox.record(uid, wanted.announcements))
        if patch := merge_patch(obj.get("status") or {}, confirmed.render()):
            obj = await self._patch_own(obj, {"status": patch}, status=True)
        if is_changed:
            outbox.note_dropped(seen.status.announcements, wanted.announcements)
            self._kind.recorded(seen, wanted)
        return obj, confirmed

    def _with_messages(self, seen: O, obj: Object, status: S) -> S:
        """The status, in which each pending fact has its message."""
        case, facts = self._kind.case(seen, status), status.announcements
        recorded = self._kind.facts.record(facts, case, object_ref(obj))
        return status if recorded == facts else cast(S, _with(status, announcements=recorded))

    def _without_bug(self, obj: Object, status: S) -> S:
        if not any(c.type == RECONCILE_FAILED and c.status == "True" for c in status.conditions):
            return status
        succeeded = _for(obj, Condition(RECONCILE_FAILED, "False", Reason.RECONCILED))
        stamp = seconds_stamp(self._out.clock.now())
        cleared: S = _with(status, conditions=set_condition(status.conditions, succeeded, stamp))
        return cleared

    async def _patch_own(self, obj: Object, patch: dict[str, Any], *, status: bool = False) -> Object:
        """Patch the object if it is unchanged. Raises Conflict otherwise, or if the object is gone."""
        key = key_of(obj)
        metadata = {**patch.get("metadata", {}), "resourceVersion": version_of(obj)}
        call = self._out.cluster.patch(
            self._out.resource,
            key,
            {**patch, "metadata": metadata},
            subresource="status" if status else "",
        )
        try:
            return await self._out.store.write(key, call)
        except NotFound as error:
            raise Conflict(f"{self._out.resource.kind} {key} is gone") from error

    async def _expire(self, obj: Object, event: KubernetesEvent) -> None:
        """Delete the object. Its finalizer keeps it until the fact of the deletion was published, too."""
        with suppress(NotFound):
            await self._out.cluster.delete(self._out.resource, key_of(obj), uid=uid_of(obj))
        self._emit(obj, (event,))

    def _emit(self, obj: Object, events: tuple[KubernetesEvent, ...]) -> None:
        for event in events:
            emit = self._out.events.warning if event.type == "Warning" else self._out.events.normal
            emit(self._out.resource, obj, event.reason, event.message)

    def _source(self, obj: Object, case: C | None) -> FactSource:
        ref = object_ref(obj)

        def render(fact: Announcement) -> Event | None:
            data = self._kind.facts.render(fact, case, ref)
            if data is None:
                return None
            return make_event(
                data,
                id=fact.event_id(ref.uid),
                source=self._out.source,
                namespace=ref.namespace,
                uid=ref.uid,
                time=datetime.fromisoformat(fact.at),
                traceparent=traceparent(),
            )

        return FactSource(key_of(obj), ref.uid, render)

    def _remember(self, key: Key, uid: str) -> None:
        """Remember the uid of the object. A new object of the same name replaces the old one."""
        if self._uids.get(key, uid) != uid:
            self._forget(key)
        self._uids[key] = uid

    def _forget(self, key: Key) -> None:
        uid = self._uids.pop(key, "")
        self._out.outbox.forget(uid)
        self._kind.forget(key, uid)


def object_ref(obj: Object) -> ObjectRef:
    """The reference to the object, in the version that was last read or written."""
    key = key_of(obj)
    return ObjectRef(
        namespace=key.namespace,
        name=key.name,
        uid=uid_of(obj),
        generation=generation_of(obj),
        resource_version=version_of(obj),
    )


def _shown(error: Permanent) -> tuple[str, str]:
    """Reason and message of a failed pass.

    A reason that is not ours comes from the API server, for a write to the object itself.
    """
    if error.reason in REASONS:
        return error.reason, error.message
    return Reason.FAILED_UPDATE, f"{error.reason}: {error.message}"


def _readable_facts(obj: Object) -> Announcements:
    """The facts of the status. Empty when they cannot be parsed."""
    try:
        return parse_announcements((obj.get("status") or {}).get("announcements"))
    except (KeyError, TypeError, ValueError):
        return ()


def _readable_conditions(obj: Object) -> Conditions:
    """The conditions of the status. Empty when they cannot be parsed."""
    try:
        return parse_conditions((obj.get("status") or {}).get("conditions"))
    except (KeyError, TypeError, ValueError):
        return ()


def _for(obj: Object, condition: Condition) -> Condition:
    return replace(condition, observed_generation=generation_of(obj))


def _with(status: Any, **changes: Any) -> Any:
    """A changed copy of a status, which is a frozen dataclass or the pydantic model of the CRD."""
    if hasattr(status, "model_copy"):
        return status.model_copy(update=changes)
    return replace(status, **changes)
