"""This service's view of Kubernetes: informers, fresh reads where a decision hangs on them, writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from paddlewheel.contracts.crds import parse_trigger_spec
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import controller_of, controller_uid, key_of, uid_of
from paddlewheel.kube.ports import PADDLE_JOBS, SAMPLE_JOBS, TRIGGERS, Change, Cluster, Object, Watches
from trigger_controller.domain import names
from trigger_controller.domain.matching import index_value, index_values
from trigger_controller.domain.model import (
    Child,
    ChildRef,
    Created,
    Creation,
    Note,
    Occurrence,
    Origin,
    Refusal,
    Trigger,
)
from trigger_controller.domain.parse import parse_child, parse_origin, parse_trigger
from trigger_controller.domain.policies.release import ALLOW

RESOURCES = {names.SAMPLE_JOB: SAMPLE_JOBS, names.PADDLE_JOB: PADDLE_JOBS}
_MATCH = "match"
_OWNER = "owner"

Wake = Callable[[Key], None]


class KubernetesTriggers:
    """Triggers, Works and Objects over one cluster.

    Args:
        namespace: whose triggers are served; "" means all.
    """

    def __init__(self, cluster: Cluster, watches: Watches, namespace: str, clock: Clock) -> None:
        self._cluster = cluster
        self._triggers = Informer(watches, TRIGGERS, namespace, clock=clock, indexes={_MATCH: _index_values})
        self._children = {
            kind: Informer(
                watches,
                resource,
                namespace,
                clock=clock,
                label_selector=names.LABEL_TRIGGER,
                indexes={_OWNER: controller_uid},
            )
            for kind, resource in RESOURCES.items()
        }

    async def run(self, wake: Wake) -> None:
        """Follow triggers and children for ever, waking the trigger that each change is about."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._triggers.run(lambda change: wake(key_of(change.obj))))
            for informer in self._children.values():
                group.create_task(informer.run(lambda change: _wake_owner(change, wake)))

    async def wait_synced(self) -> None:
        """Return once all caches hold what the cluster holds."""
        for informer in (self._triggers, *self._children.values()):
            await informer.wait_synced()

    @property
    def synced(self) -> bool:
        return self._triggers.synced and all(i.synced for i in self._children.values())

    def keys(self) -> list[Key]:
        """All triggers."""
        return self._triggers.keys()

    def candidates(self, occurrence: Occurrence) -> list[Key]:
        return [key_of(t) for t in self._triggers.by_index(_MATCH, index_value(occurrence))]

    async def find(self, key: Key) -> Trigger | None:
        try:
            raw = await self._cluster.get(TRIGGERS, key)
        except NotFound:
            return None
        trigger = parse_trigger(raw)
        return None if trigger.is_deleting else trigger

    async def children(self, trigger: Trigger) -> tuple[Child, ...]:
        if trigger.spec.concurrency_policy == ALLOW:
            found = [o for i in self._children.values() for o in i.by_index(_OWNER, trigger.uid)]
        else:
            # The cache may not show yet what was created a moment ago.
            found = [o for kind in RESOURCES for o in await self._list(kind, trigger)]
        return tuple(parse_child(obj) for obj in found)

    async def _list(self, kind: str, trigger: Trigger) -> list[Object]:
        selector = f"{names.LABEL_TRIGGER}={trigger.key.name}"
        listed = await self._cluster.list(RESOURCES[kind], trigger.key.namespace, label_selector=selector)
        return [obj for obj in listed if controller_uid(obj) == [trigger.uid]]

    async def patch_status(self, trigger: Trigger, patch: Mapping[str, Any]) -> None:
        body = {"metadata": {"resourceVersion": trigger.resource_version}, "status": dict(patch)}
        try:
            await self._cluster.patch(TRIGGERS, trigger.key, body, subresource="status")
        except NotFound as error:
            raise Conflict(f"Trigger {trigger.key} is gone") from error

    async def create(self, trigger: Trigger, creation: Creation) -> Created:
        try:
            made = await self._cluster.create(RESOURCES[creation.kind], dict(creation.manifest))
        except AlreadyExists:
            return await self._claim(trigger, creation)
        except NotFound as error:
            return Created(creation, refusal=Refusal("NotFound", str(error)))
        except Permanent as error:
            return Created(creation, refusal=Refusal(error.reason, error.message))
        return Created(creation, _ref(creation.kind, made))

    async def _claim(self, trigger: Trigger, creation: Creation) -> Created:
        """One made for the same event before a crash is the one; another's is never touched."""
        key = key_of(dict(creation.manifest))
        try:
            found = await self._cluster.get(RESOURCES[creation.kind], key)
        except NotFound as error:
            raise Conflict(f"{creation.kind} {key} came and went") from error
        marks = found["metadata"].get("annotations") or {}
        is_same = marks.get(names.ANNOTATION_EVENT) == creation.gathered.newest.id
        if controller_uid(found) == [trigger.uid] and is_same:
            return Created(creation, _ref(creation.kind, found))
        message = f"{creation.kind} {key.name} exists and was not created for this event; delete or rename it"
        return Created(creation, refusal=Refusal(names.NAME_TAKEN, message))

    async def delete(self, trigger: Trigger, child: ChildRef) -> None:
        key = Key(trigger.key.namespace, child.name)
        await self._cluster.delete(RESOURCES[child.kind], key, uid=child.uid)

    async def origin(self, kind: str, key: Key, uid: str) -> Origin | None:
        try:
            found = await self._cluster.get(RESOURCES[kind], key)
        except NotFound:
            return None
        return parse_origin(found) if uid_of(found) == uid else None


class KubernetesNotes:
    """Events on the trigger, through the shared recorder."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def note(self, trigger: Trigger, note: Note) -> None:
        tell = self._recorder.warning if note.type == "Warning" else self._recorder.normal
        regarding = {"namespace": trigger.key.namespace, "name": trigger.key.name, "uid": trigger.uid}
        tell(TRIGGERS, {"metadata": regarding}, note.reason, note.message)


def _ref(kind: str, obj: Object) -> ChildRef:
    return ChildRef(kind, str(obj["metadata"]["name"]), uid_of(obj))


def _index_values(raw: Object) -> list[str]:
    try:
        spec = parse_trigger_spec(raw)
    except Permanent:
        # The reconcile says so on the object.
        return []
    return index_values(str(raw["metadata"]["namespace"]), spec)


def _wake_owner(change: Change, wake: Wake) -> None:
    owner = controller_of(change.obj)
    if owner and owner.get("kind") == names.KIND:
        wake(Key(str(change.obj["metadata"].get("namespace", "")), str(owner["name"])))
