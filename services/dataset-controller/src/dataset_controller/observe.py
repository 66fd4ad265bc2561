"""Reads only: the view and the mirrors, gathered into what a plan is made from."""

from __future__ import annotations

from dataset_controller.bus_certificate import BusCertificate
from dataset_controller.domain.names import CSI_DRIVER
from dataset_controller.domain.objects import deleted_at, key_of, spec_of, status_of, uid_of
from dataset_controller.domain.samplejob.credentials import job_secret_key, runs_with_own_keys
from dataset_controller.domain.samplejob.model import ObservedJob
from dataset_controller.domain.sampleset.model import Children, JobSource, ObservedSet
from dataset_controller.domain.sampleset.spec import engine_secret_key, source_secret_key
from dataset_controller.mirrors import NodeMirror, RunMirror
from dataset_controller.ports import DataCluster
from dataset_controller.view import BY_LABEL, BY_SET, View
from paddlewheel.contracts.dataset_names import (
    claim_name,
    node_label,
    pv_name,
    runtime_name,
    runtime_service_name,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.kube.ports import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SAMPLE_JOBS,
    SAMPLE_SETS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    Object,
    Resource,
)

_ENDED = ("Succeeded", "Failed")


class Observer:
    """Gathers one object's world."""

    def __init__(
        self,
        view: View,
        runs: RunMirror,
        nodes: NodeMirror,
        cluster: DataCluster,
        certificate: BusCertificate,
    ) -> None:
        self._view = view
        self._certificate = certificate
        self._runs = runs
        self._nodes = nodes
        self._cluster = cluster

    async def sample_set(self, key: Key, *, figures_due: bool) -> ObservedSet | None:
        """Everything about one set, None when it is gone."""
        obj = self._view.of(SAMPLE_SETS).get(key)
        if obj is None:
            return None
        uid = uid_of(obj)
        pods = tuple(self._view.of(PODS).by_index(BY_SET, str(Key(key.namespace, runtime_name(key.name)))))
        return ObservedSet(
            obj=obj,
            engine_secret=self._secret(engine_secret_key(obj)),
            source_secret=self._secret(source_secret_key(obj)),
            children=self._children(key),
            pods=pods,
            nodes=self._nodes_of(key, pods),
            runs=self._runs.of(uid),
            reports=self._nodes.of(uid),
            jobs=self._job_sources(key),
            users=await self._users(obj),
            has_csi=self._view.of(CSI_DRIVERS).get(Key("", CSI_DRIVER)) is not None,
            figures_due=figures_due,
            bus_certificate=self._certificate.read(),
        )

    async def sample_job(self, key: Key, *, progress_due: bool) -> ObservedJob | None:
        """Everything about one job, None when it is gone."""
        obj = self._view.of(SAMPLE_JOBS).get(key)
        if obj is None:
            return None
        name = str((spec_of(obj).get("sampleSetRef") or {}).get("name") or "")
        sample_set = self._view.of(SAMPLE_SETS).get(Key(key.namespace, name))
        return ObservedJob(
            obj=obj,
            sample_set=sample_set,
            secret=self._secret(job_secret_key(obj)),
            runs=self._runs.of(uid_of(sample_set)) if sample_set else {},
            recorded=self._runs.find(str(status_of(obj).get("jobName") or "")),
            progress_due=progress_due,
        )

    def is_set_stale(self, key: Key) -> bool:
        """A write of ours to the set or its children has not come back yet."""
        named = [
            (SAMPLE_SETS, key),
            (PERSISTENT_VOLUMES, Key("", pv_name(key.namespace, key.name))),
            (PERSISTENT_VOLUME_CLAIMS, Key(key.namespace, claim_name(key.name))),
            (SECRETS, Key(key.namespace, runtime_name(key.name))),
            (SERVICES, Key(key.namespace, runtime_service_name(key.name))),
            (STATEFUL_SETS, Key(key.namespace, runtime_name(key.name))),
        ]
        pods = self._view.of(PODS).by_index(BY_SET, str(Key(key.namespace, runtime_name(key.name))))
        named += [(PODS, key_of(pod)) for pod in pods]
        named += [(NODES, Key("", str(spec_of(pod).get("nodeName") or ""))) for pod in pods]
        return any(self._view.is_stale(resource, child) for resource, child in named)

    def is_job_stale(self, key: Key) -> bool:
        """A write of ours to the job has not come back yet."""
        return self._view.is_stale(SAMPLE_JOBS, key)

    def _children(self, key: Key) -> Children:
        def child(resource: Resource, name: str) -> Object | None:
            place = key.namespace if resource.namespaced else ""
            return self._view.of(resource).get(Key(place, name))

        return Children(
            volume=child(PERSISTENT_VOLUMES, pv_name(key.namespace, key.name)),
            claim=child(PERSISTENT_VOLUME_CLAIMS, claim_name(key.name)),
            secret=child(SECRETS, runtime_name(key.name)),
            service=child(SERVICES, runtime_service_name(key.name)),
            stateful_set=child(STATEFUL_SETS, runtime_name(key.name)),
        )

    def _nodes_of(self, key: Key, pods: tuple[Object, ...]) -> tuple[Object, ...]:
        """Nodes that carry the set's label, and those that hold its pods."""
        nodes = self._view.of(NODES)
        found = {key_of(n): n for n in nodes.by_index(BY_LABEL, node_label(key.namespace, key.name))}
        for pod in pods:
            place = Key("", str(spec_of(pod).get("nodeName") or ""))
            if (node := nodes.get(place)) is not None:
                found[place] = node
        return tuple(found[place] for place in sorted(found))

    def _job_sources(self, key: Key) -> tuple[JobSource, ...]:
        jobs = self._view.of(SAMPLE_JOBS).by_index(BY_SET, str(key))
        return tuple(JobSource(j, self._secret(job_secret_key(j))) for j in jobs if runs_with_own_keys(j))

    def _secret(self, key: Key | None) -> Object | None:
        return self._view.of(SECRETS).get(key) if key else None

    async def _users(self, obj: Object) -> tuple[str, ...]:
        """Pods that use the claim; asked of the API server, since it is needed only while deleting."""
        if not deleted_at(obj):
            return ()
        key = key_of(obj)
        pods = await self._cluster.list(PODS, key.namespace)
        return tuple(key_of(pod).name for pod in pods if _uses(pod, claim_name(key.name)))


def _uses(pod: Object, claim: str) -> bool:
    if status_of(pod).get("phase") in _ENDED:
        return False
    volumes = spec_of(pod).get("volumes") or ()
    return any((v.get("persistentVolumeClaim") or {}).get("claimName") == claim for v in volumes)
