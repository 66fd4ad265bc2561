"""This service's view of Kubernetes: informers overlaid with its own writes, and the writes themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

from job_controller.domain import names
from job_controller.domain.model import Child, ChildKind, ChildRef, Job, Note, PortClaim, SampleSet
from job_controller.domain.parse import owner_key, owner_uid, parse_sample_set
from job_controller.domain.plan import Refusal
from job_controller.domain.policies.host_ports import parse_port
from job_controller.domain.policies.urgency import may_turn_phase
from job_controller.ports import Children, Raw
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import AlreadyExists, Conflict, NotFound, Permanent
from paddlewheel.kube.events import EventRecorder
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import controller_uid, key_of, version_of
from paddlewheel.kube.ports import (
    CONFIG_MAPS,
    PADDLE_JOBS,
    PODS,
    SAMPLE_SETS,
    SERVICES,
    Change,
    Cluster,
    Watches,
)

_RESOURCES = {ChildKind.POD: PODS, ChildKind.SERVICE: SERVICES, ChildKind.CONFIG_MAP: CONFIG_MAPS}
_OWNER = "owner"
_SAMPLE_SET = "sample-set"
_HOST_PORT = "host-port"

BATCH = 0.2
"""Seconds a child's change that turns no phase waits for others of its job: pods change in bursts."""

Wake = Callable[[Key, float], None]
"""Reconcile the key in so many seconds."""


class KubernetesJobs:
    """JobCache, JobWriter and ChildWriter over one cluster.

    Args:
        namespace: whose jobs are served; "" means all.
    """

    def __init__(self, cluster: Cluster, watches: Watches, namespace: str, clock: Clock) -> None:
        self._cluster = cluster
        indexes = {_SAMPLE_SET: _sample_set_of, _HOST_PORT: _host_port_of}
        self._jobs = Informer(watches, PADDLE_JOBS, namespace, clock=clock, indexes=indexes)
        self._children = {
            kind: Informer(
                watches,
                resource,
                namespace,
                clock=clock,
                label_selector=names.LABEL_NAME,
                indexes={_OWNER: controller_uid},
            )
            for kind, resource in _RESOURCES.items()
        }

    async def run(self, wake: Wake) -> None:
        """Follow jobs and children for ever, waking the job that each change is about."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._jobs.run(lambda change: wake(key_of(change.obj), 0.0)))
            for kind, informer in self._children.items():
                group.create_task(informer.run(self._child_changed(kind, wake)))

    async def wait_synced(self) -> None:
        """Return once all caches hold what the cluster holds."""
        for informer in (self._jobs, *self._children.values()):
            await informer.wait_synced()

    @property
    def synced(self) -> bool:
        return self._jobs.synced and all(i.synced for i in self._children.values())

    def keys(self) -> list[Key]:
        """All jobs."""
        return self._jobs.keys()

    def users_of(self, sample_set: Key) -> list[Key]:
        """Jobs that reference the data set."""
        return [key_of(job) for job in self._jobs.by_index(_SAMPLE_SET, str(sample_set))]

    def job(self, key: Key) -> Raw | None:
        return self._jobs.get(key)

    def children(self, job_uid: str) -> Children:
        return Children(
            pods=self._of(ChildKind.POD, job_uid),
            services=self._of(ChildKind.SERVICE, job_uid),
            config_maps=self._of(ChildKind.CONFIG_MAP, job_uid),
        )

    def port_claims(self, but: str) -> tuple[PortClaim, ...]:
        jobs = self._jobs.by_index(_HOST_PORT, "taken")
        return tuple(_port_claim(j) for j in jobs if j["metadata"]["uid"] != but)

    async def patch_metadata(self, job: Job, patch: Mapping[str, Any]) -> Raw:
        return await self._patch(job, {"metadata": {**patch, "resourceVersion": job.resource_version}}, "")

    async def patch_status(self, job: Job, patch: Mapping[str, Any]) -> None:
        body = {"metadata": {"resourceVersion": job.resource_version}, "status": dict(patch)}
        await self._patch(job, body, "status")

    async def _patch(self, job: Job, body: Mapping[str, Any], subresource: Literal["", "status"]) -> Raw:
        """A job is gone as soon as its last finalizer is, which the cache learns a little later."""
        try:
            answer = await self._cluster.patch(PADDLE_JOBS, job.key, body, subresource=subresource)
        except NotFound as error:
            raise Conflict(f"PaddleJob {job.key} is gone") from error
        self._jobs.wrote(answer)
        return answer

    async def check_current(self, job: Job) -> None:
        try:
            now = await self._cluster.get(PADDLE_JOBS, job.key)
        except NotFound as error:
            raise Conflict(f"PaddleJob {job.key} is gone") from error
        if version_of(now) != job.resource_version:
            raise Conflict(f"PaddleJob {job.key} has been modified")

    async def create(self, job: Job, child: Child) -> Refusal | None:
        try:
            made = await self._cluster.create(_RESOURCES[child.kind], child.manifest)
        except AlreadyExists:
            return await self._claim(job, child)
        except Permanent as error:
            return Refusal(f"{child.kind.value} {child.name}", error.reason, error.message)
        self._children[child.kind].wrote(made)
        return None

    async def _claim(self, job: Job, child: Child) -> Refusal | None:
        """Ours from before a crash is fine; another's is never touched."""
        key = Key(job.key.namespace, child.name)
        try:
            found = await self._cluster.get(_RESOURCES[child.kind], key)
        except NotFound as error:
            raise Conflict(f"{child.kind.value} {key} came and went") from error
        if owner_uid(found) == job.uid:
            self._children[child.kind].read(found)
            return None
        message = "exists and does not belong to this job; delete it or rename the job"
        return Refusal(f"{child.kind.value} {child.name}", "OwnedByAnother", message)

    async def patch(self, job: Job, kind: ChildKind, name: str, patch: Mapping[str, Any]) -> None:
        try:
            answer = await self._cluster.patch(_RESOURCES[kind], Key(job.key.namespace, name), patch)
        except NotFound:
            return
        self._children[kind].wrote(answer)

    async def delete(self, job: Job, child: ChildRef) -> None:
        key = Key(job.key.namespace, child.name)
        await self._cluster.delete(_RESOURCES[child.kind], key, uid=child.uid)
        # A pod keeps its name until it is really gone, the others go at once.
        vanishes = child.kind is not ChildKind.POD
        self._children[child.kind].deleting(key, child.uid, vanishes=vanishes)

    def _of(self, kind: ChildKind, job_uid: str) -> tuple[Raw, ...]:
        return tuple(sorted(self._children[kind].by_index(_OWNER, job_uid), key=key_of))

    def _child_changed(self, kind: ChildKind, wake: Wake) -> Callable[[Change], None]:
        def changed(change: Change) -> None:
            if key := owner_key(change.obj):
                wake(key, 0.0 if self._is_urgent(kind, change) else BATCH)

        return changed

    def _is_urgent(self, kind: ChildKind, change: Change) -> bool:
        """Facts are told of what this may bring about: nobody should wait for a batch to fill."""
        if kind is not ChildKind.POD or change.type == "DELETED":
            return False
        return may_turn_phase(change.obj, self._children[kind].by_index(_OWNER, owner_uid(change.obj)))


class KubernetesSampleSets:
    """Data sets by GET: the caller was told on the bus that one has changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def find(self, key: Key) -> SampleSet | None:
        try:
            return parse_sample_set(await self._cluster.get(SAMPLE_SETS, key))
        except NotFound:
            return None


class KubernetesEvents:
    """Events on the job, through the shared recorder."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def note(self, job: Job, note: Note) -> None:
        tell = self._recorder.warning if note.type == "Warning" else self._recorder.normal
        regarding = {"namespace": job.key.namespace, "name": job.key.name, "uid": job.uid}
        tell(PADDLE_JOBS, {"metadata": regarding}, note.reason, note.message)


def _sample_set_of(job: Raw) -> list[str]:
    ref = (job.get("spec") or {}).get("sampleSetRef")
    if not ref:
        return []
    return [str(Key(str(ref.get("namespace") or job["metadata"]["namespace"]), str(ref.get("name", ""))))]


def _host_port_of(job: Raw) -> list[str]:
    return ["taken"] if _claimed_port(job) is not None else []


def _claimed_port(job: Raw) -> int | None:
    annotations = job["metadata"].get("annotations") or {}
    return parse_port(str(annotations.get(names.ANNOTATION_HOST_PORT, "")))


def _port_claim(job: Raw) -> PortClaim:
    meta = job["metadata"]
    return PortClaim(_claimed_port(job) or 0, str(meta.get("creationTimestamp", "")), str(meta["uid"]))
