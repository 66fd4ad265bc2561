"""The informers of this service, and the objects that each change wakes. No decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, TypeVar

from dataset_controller.domain import names
from dataset_controller.domain.indexes import (
    as_jobs_see,
    as_others_see,
    as_sets_see,
    concerns_set,
    is_being_bound,
    is_finished,
    is_waiting,
    kept_of_pod,
    label_of_set,
    labels_of_node,
    labels_to_wake,
    moving_since,
    owner_of_volume,
    run_of_job,
    runtime_of_pod,
    runtimes_of_set,
    set_name,
    set_of_job,
    set_of_runtime,
    set_of_waiting_job,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import spec_of
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.core.clock import Clock
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SAMPLE_JOBS,
    SAMPLE_SETS,
    SERVICES,
    STATEFUL_SETS,
    Change,
    Keep,
    Object,
    Resource,
    Watches,
    whole,
)
from paddlewheel.operator.watch import Watch

SET, JOB = SAMPLE_SETS.kind, SAMPLE_JOBS.kind
BY_UID, BY_LABEL, BY_SET, BY_RUN, BY_OWNER = "uid", "label", "set", "run", "owner"
BY_WAITING = "waiting"
"""Jobs by the set whose other runs they are cancelling."""
BY_MOVING, MOVING = "moving", "moving"
"""Sets whose runtime moves now."""
BY_RUNTIME = "runtime"
"""Sets by the keys that their runtime has, or had in earlier releases."""

Wake = Callable[[Key], None]
V = TypeVar("V")


def make_watch(watches: Watches, namespace: str, home: str, clock: Clock) -> Watch:
    """Informers of everything a plan depends on, without Secrets.

    Args:
        namespace: the namespace of the sets; "" means all.
        home: the namespace of the release, with the runtimes. Earlier releases created them in `namespace`.
    """
    managed = (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS)
    runtime = ((SERVICES, whole), (STATEFUL_SETS, whole), (PODS, kept_of_pod))
    informers = [
        Informer(
            watches,
            SAMPLE_SETS,
            namespace,
            clock=clock,
            indexes={
                BY_UID: lambda obj: [uid_of(obj)],
                BY_LABEL: label_of_set,
                BY_RUNTIME: partial(runtimes_of_set, home=home),
                BY_MOVING: lambda obj: [MOVING] if moving_since(obj) else [],
            },
        ),
        Informer(
            watches,
            SAMPLE_JOBS,
            namespace,
            clock=clock,
            indexes={
                BY_SET: set_of_job,
                BY_RUN: run_of_job,
                BY_WAITING: set_of_waiting_job,
            },
        ),
        Informer(watches, NODES, clock=clock, indexes={BY_LABEL: labels_of_node}),
        Informer(watches, CSI_DRIVERS, clock=clock),
        *(_managed(watches, resource, namespace, clock) for resource in managed),
        *(_managed(watches, resource, namespace and home, clock, keep) for resource, keep in runtime),
    ]
    found = {informer.resource.kind: informer for informer in informers}
    if namespace and namespace != home:
        old = [_managed(watches, resource, namespace, clock, keep) for resource, keep in runtime]
        found |= {_kind_in(informer.resource.kind, namespace): informer for informer in old}
    return Watch(found)


def copy_of(watch: Watch, kind: str, namespace: str) -> Informer:
    """The informer with a runtime's objects of this kind in this namespace."""
    return watch.stores.get(_kind_in(kind, namespace)) or watch.of(kind)


def _kind_in(kind: str, namespace: str) -> str:
    return f"{kind} in {namespace}"


def _managed(
    watches: Watches, resource: Resource, namespace: str, clock: Clock, keep: Keep = whole
) -> Informer:
    return Informer(
        watches,
        resource,
        namespace if resource.namespaced else "",
        clock=clock,
        label_selector=names.MANAGED_SELECTOR,
        indexes={BY_SET: runtime_of_pod, BY_OWNER: owner_of_volume},
        keep=keep,
    )


def sets_of_runtimes(watch: Watch) -> set[Key]:
    """The keys of the sets that have a runtime in the namespace of the release. Such a set may be gone."""
    runtimes = (obj for kind in (names.STATEFUL_SET, names.SERVICE_KIND) for obj in watch.of(kind).list())
    return {key for obj in runtimes if (key := set_of_runtime(obj)) is not None}


def set_of_jobs(watch: Watch) -> Callable[[Key], Key | None]:
    """Maps a SampleJob's key to that of its set: one replica decides which jobs of a set run, and when."""

    def set_of(key: Key) -> Key | None:
        job = watch.of(JOB).get(key)
        return None if job is None else Key(key.namespace, set_name(job))

    return set_of


def are_being_bound(watch: Watch) -> Callable[[Key], bool]:
    """Whether the SampleSet of a key is being bound."""
    sets = watch.of(SET)

    def is_one(key: Key) -> bool:
        sample_set = sets.get(key)
        return sample_set is not None and is_being_bound(sample_set)

    return is_one


class Views(Generic[V]):
    """The parts of each object of a kind that others depend on, to find out whether a change concerns
    them."""

    def __init__(self, view_of: Callable[[Object], V]) -> None:
        self._view_of = view_of
        self._last: dict[Key, V] = {}

    def taken_in(self, change: Change) -> tuple[V | None, V | None]:
        """Before and after the change; None where there is no such object."""
        key = key_of(change.obj)
        before = self._last.pop(key, None)
        after = None if change.type == "DELETED" else self._view_of(change.obj)
        if after is not None:
            self._last[key] = after
        return before, after


class Wakes:
    """Knows which sets and jobs a change is about.

    Args:
        forget: called with every object that is gone.
        forget_reports: called with the uid of a set that is gone, and whose agents still report.
    """

    def __init__(
        self,
        watch: Watch,
        wake_set: Wake,
        wake_job: Wake,
        forget: Callable[[Object], None] = lambda _: None,
        forget_reports: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._sets, self._jobs, self._nodes = watch.of(SET), watch.of(JOB), watch.of(names.NODE)
        self._wake_set = wake_set
        self._wake_job = wake_job
        self._forget = forget
        self._forget_reports = forget_reports
        self._sets_as_jobs_see = Views(as_jobs_see)
        self._jobs_as_others_see = Views(as_others_see)
        self._nodes_as_sets_see = Views(as_sets_see)
        self._by_kind: Mapping[str, Callable[[Object], None]] = {
            names.POD: self._pod_changed,
            names.VOLUME: self._volume_changed,
            names.CLAIM: self._child_changed,
            names.SERVICE_KIND: self._child_changed,
            names.STATEFUL_SET: self._child_changed,
        }

    def changed(self, kind: str, change: Change) -> None:
        """A watched object was added, modified or deleted."""
        if change.type == "DELETED":
            self._forget(change.obj)
        if kind == SET:
            self._set_changed(change)
        elif kind == JOB:
            self._job_changed(change)
        elif kind == names.NODE:
            self._node_changed(change)
        elif handle := self._by_kind.get(kind.partition(" ")[0]):
            handle(change.obj)

    def run_changed(self, run: RunKey) -> None:
        """The runtime has written a run's state."""
        jobs = self._jobs.by_index(BY_RUN, run.run_id)
        for sample_set in self._sets.by_index(BY_UID, run.set_uid):
            self._wake_set(key_of(sample_set))
            jobs += self._jobs.by_index(BY_WAITING, str(key_of(sample_set)))
        for job in jobs:
            self._wake_job(key_of(job))

    def report_changed(self, set_uid: str) -> None:
        """An agent has reported on its node. Those of a set that is gone do so until they end."""
        sets = self._sets.by_index(BY_UID, set_uid)
        if not sets and self._sets.synced:
            self._forget_reports(set_uid)
        for sample_set in sets:
            self._wake_set(key_of(sample_set))

    def _set_changed(self, change: Change) -> None:
        """An own write wakes only jobs, and those only when it is about something that they wait for."""
        key = key_of(change.obj)
        if not self._sets.is_own(change):
            self._wake_set(key)
        before, after = self._sets_as_jobs_see.taken_in(change)
        if after == before:
            return
        for job in self._jobs.by_index(BY_SET, str(key)):
            if not is_finished(job):
                self._wake_job(key_of(job))

    def _job_changed(self, change: Change) -> None:
        if not self._jobs.is_own(change):
            self._wake_job(key_of(change.obj))
        self._wake_set_of(change.obj)
        self._wake_waiting(change)

    def _wake_waiting(self, change: Change) -> None:
        """Wakes jobs that wait for this one: jobs of its set that have not begun, and jobs whose deletion it
        delays."""
        key = key_of(change.obj)
        before, after = self._jobs_as_others_see.taken_in(change)
        if after == before:
            return
        views = [seen for seen in (before, after) if seen is not None]
        for awaited in {awaited for seen in views for awaited in seen.awaits}:
            self._wake_job(awaited)
        sets = {name for seen in views for name in seen.sets}
        for job in (job for name in sets for job in self._jobs.by_index(BY_SET, name)):
            if key_of(job) != key and is_waiting(job):
                self._wake_job(key_of(job))

    def _wake_set_of(self, job: Object) -> None:
        if concerns_set(job) and (name := set_name(job)):
            self._wake_set(Key(key_of(job).namespace, name))

    def _node_changed(self, change: Change) -> None:
        """A set that took its own label off needs no look; one that was robbed of it puts it back."""
        before, after = self._nodes_as_sets_see.taken_in(change)
        labels = labels_to_wake(before or {}, after or {})
        if self._nodes.is_own(change):
            labels.intersection_update(labels_of_node(change.obj))
        for label in labels:
            for sample_set in self._sets.by_index(BY_LABEL, label):
                self._wake_set(key_of(sample_set))

    def _pod_changed(self, obj: Object) -> None:
        for runtime in runtime_of_pod(obj):
            for sample_set in self._sets.by_index(BY_RUNTIME, runtime):
                self._wake_set(key_of(sample_set))

    def _volume_changed(self, obj: Object) -> None:
        claim = spec_of(obj).get("claimRef") or {}
        if spec_of(obj).get("storageClassName") == names.STORAGE_CLASS and claim.get("name"):
            self._wake_set(Key(str(claim.get("namespace", "")), str(claim["name"])))

    def _child_changed(self, obj: Object) -> None:
        """Wakes the set of the object. If it does not exist, the object is then removed."""
        if (key := set_of_runtime(obj)) is not None:
            self._wake_set(key)
        for owner in obj["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == SET and owner.get("apiVersion") == names.API_VERSION:
                self._wake_set(Key(key_of(obj).namespace, str(owner.get("name", ""))))
