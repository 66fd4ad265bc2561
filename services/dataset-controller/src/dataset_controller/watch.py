"""What this service watches, and which objects each change wakes. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dataset_controller.domain import names
from dataset_controller.domain.names import JobPhase
from dataset_controller.domain.sampleset.policies.labels import PREFIX
from paddlewheel.contracts.dataset_names import node_label
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.core.clock import Clock
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import key_of, labels_of, uid_of
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
    Change,
    Object,
    Resource,
    Watches,
)
from paddlewheel.operator.watch import Watch

SET, JOB = SAMPLE_SETS.kind, SAMPLE_JOBS.kind
USER_SECRETS = "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token"
"""The two numerous types of Secrets that no SampleSet names."""
BY_UID, BY_SECRET, BY_LABEL, BY_SET, BY_RUN = "uid", "secret", "label", "set", "run"
BY_WAITING = "waiting"
"""Jobs by the set whose other runs they are cancelling."""
RUNTIME_SUFFIX = "-runtime"

_SUCCEEDED, _FAILED = JobPhase.SUCCEEDED.value, JobPhase.FAILED.value

Wake = Callable[[Key], None]


@dataclass(frozen=True)
class _SetAsJobsSee:
    """What a SampleJob depends on of its set; figures, conditions and facts are not among it.

    Args:
        request: identity and spec, from which a run's operation is made.
        stage: phase and mounted partitions, for which a run waits.
    """

    request: tuple[Any, ...]
    stage: tuple[Any, ...]


def make_watch(watches: Watches, namespace: str, clock: Clock) -> Watch:
    """Informers of everything a plan depends on. `namespace` "" means all."""
    managed = (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, SERVICES, STATEFUL_SETS, PODS)
    informers = [
        Informer(
            watches,
            SAMPLE_SETS,
            namespace,
            clock=clock,
            indexes={BY_UID: lambda obj: [uid_of(obj)], BY_SECRET: _set_secrets, BY_LABEL: _set_label},
        ),
        Informer(
            watches,
            SAMPLE_JOBS,
            namespace,
            clock=clock,
            indexes={
                BY_SET: _set_of_job,
                BY_RUN: _run_of_job,
                BY_SECRET: _job_secret,
                BY_WAITING: _set_of_waiting_job,
            },
        ),
        # A Secret may be named across namespaces.
        Informer(watches, SECRETS, clock=clock, field_selector=USER_SECRETS),
        Informer(watches, NODES, clock=clock, indexes={BY_LABEL: _set_labels_of}),
        Informer(watches, CSI_DRIVERS, clock=clock),
        *(_managed(watches, resource, namespace, clock) for resource in managed),
    ]
    return Watch({informer.resource.kind: informer for informer in informers})


def _managed(watches: Watches, resource: Resource, namespace: str, clock: Clock) -> Informer:
    return Informer(
        watches,
        resource,
        namespace if resource.namespaced else "",
        clock=clock,
        label_selector=names.MANAGED_SELECTOR,
        indexes={BY_SET: _runtime_of_pod},
    )


class Wakes:
    """Knows which sets and jobs a change is about.

    Args:
        forget: called with every object that is gone.
    """

    def __init__(
        self, watch: Watch, wake_set: Wake, wake_job: Wake, forget: Callable[[Object], None] = lambda _: None
    ) -> None:
        self._sets, self._jobs = watch.of(SET), watch.of(JOB)
        self._wake_set = wake_set
        self._wake_job = wake_job
        self._forget = forget
        self._seen_by_jobs: dict[Key, _SetAsJobsSee] = {}
        self._by_kind: Mapping[str, Callable[[Object], None]] = {
            names.SECRET: self._secret_changed,
            names.NODE: self._node_changed,
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
        elif kind in self._by_kind:
            self._by_kind[kind](change.obj)

    def run_changed(self, run: RunKey) -> None:
        """The runtime has written a run's state."""
        jobs = self._jobs.by_index(BY_RUN, run.run_id)
        for sample_set in self._sets.by_index(BY_UID, run.set_uid):
            self._wake_set(key_of(sample_set))
            jobs += self._jobs.by_index(BY_WAITING, str(key_of(sample_set)))
        for job in jobs:
            self._wake_job(key_of(job))

    def report_changed(self, set_uid: str) -> None:
        """An agent has reported on its node."""
        for sample_set in self._sets.by_index(BY_UID, set_uid):
            self._wake_set(key_of(sample_set))

    def _set_changed(self, change: Change) -> None:
        """An own write wakes only jobs, and those only when it is about something that they wait for."""
        key = key_of(change.obj)
        if not self._sets.is_own(change):
            self._wake_set(key)
        before = self._seen_by_jobs.pop(key, None)
        after = None if change.type == "DELETED" else _as_jobs_see(change.obj)
        if after is not None:
            self._seen_by_jobs[key] = after
        if after == before:
            return
        is_request_same = before is not None and after is not None and before.request == after.request
        for job in self._jobs.by_index(BY_SET, str(key)):
            if not _is_finished(job, is_request_same):
                self._wake_job(key_of(job))

    def _job_changed(self, change: Change) -> None:
        if not self._jobs.is_own(change):
            self._wake_job(key_of(change.obj))
        self._wake_set_of(change.obj)

    def _wake_set_of(self, job: Object) -> None:
        """The set's runtime Secret contains the keys of syncs under way."""
        if _spec(job).get("type") == "sync" and (name := _set_name(job)):
            self._wake_set(Key(key_of(job).namespace, name))

    def _secret_changed(self, obj: Object) -> None:
        key = str(key_of(obj))
        for sample_set in self._sets.by_index(BY_SECRET, key):
            self._wake_set(key_of(sample_set))
        for job in self._jobs.by_index(BY_SECRET, key):
            self._wake_job(key_of(job))
            self._wake_set_of(job)
        self._child_changed(obj)

    def _node_changed(self, obj: Object) -> None:
        for label in _set_labels_of(obj):
            for sample_set in self._sets.by_index(BY_LABEL, label):
                self._wake_set(key_of(sample_set))

    def _pod_changed(self, obj: Object) -> None:
        runtime = labels_of(obj).get("name", "")
        if runtime.endswith(RUNTIME_SUFFIX):
            self._wake_set(Key(key_of(obj).namespace, runtime.removesuffix(RUNTIME_SUFFIX)))

    def _volume_changed(self, obj: Object) -> None:
        claim = _spec(obj).get("claimRef") or {}
        if _spec(obj).get("storageClassName") == names.STORAGE_CLASS and claim.get("name"):
            self._wake_set(Key(str(claim.get("namespace", "")), str(claim["name"])))

    def _child_changed(self, obj: Object) -> None:
        for owner in obj["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == SET and owner.get("apiVersion") == names.API_VERSION:
                self._wake_set(Key(key_of(obj).namespace, str(owner.get("name", ""))))


def _spec(obj: Object) -> dict[str, Any]:
    return obj.get("spec") or {}


def _as_jobs_see(sample_set: Object) -> _SetAsJobsSee:
    metadata, status = sample_set["metadata"], sample_set.get("status") or {}
    ready = (status.get("runtimeStatus") or {}).get("readyReplicas")
    return _SetAsJobsSee(
        (uid_of(sample_set), metadata.get("generation"), metadata.get("deletionTimestamp")),
        (status.get("phase"), ready),
    )


def _is_finished(job: Object, is_request_same: bool) -> bool:
    """A failed job starts again when the set's spec, e.g. its source, changes what it asks for."""
    phase = (job.get("status") or {}).get("phase")
    return phase == _SUCCEEDED or (phase == _FAILED and is_request_same)


def _secret(obj: Object, reference: dict[str, Any] | None) -> list[str]:
    if not reference or not reference.get("name"):
        return []
    return [str(Key(reference.get("namespace") or key_of(obj).namespace, reference["name"]))]


def _set_secrets(obj: Object) -> list[str]:
    spec = _spec(obj)
    named = (spec.get("secretRef"), (spec.get("source") or {}).get("secretRef"))
    return sorted({key for reference in named for key in _secret(obj, reference)})


def _set_label(obj: Object) -> list[str]:
    key = key_of(obj)
    return [node_label(key.namespace, key.name)]


def _set_name(job: Object) -> str:
    return str((_spec(job).get("sampleSetRef") or {}).get("name") or "")


def _set_of_job(obj: Object) -> list[str]:
    return [str(Key(key_of(obj).namespace, name))] if (name := _set_name(obj)) else []


def _set_of_waiting_job(obj: Object) -> list[str]:
    is_waiting = _spec(obj).get("terminate") and not (obj.get("status") or {}).get("phase")
    return _set_of_job(obj) if is_waiting else []


def _run_of_job(obj: Object) -> list[str]:
    run = (obj.get("status") or {}).get("jobName")
    return [str(run)] if run else []


def _job_secret(obj: Object) -> list[str]:
    return _secret(obj, _spec(obj).get("secretRef"))


def _set_labels_of(obj: Object) -> list[str]:
    """Of a node."""
    return [name for name in labels_of(obj) if name.startswith(PREFIX)]


def _runtime_of_pod(obj: Object) -> list[str]:
    """Pods by `<namespace>/<set>-runtime`; other kinds have no such label."""
    name = labels_of(obj).get("name")
    return [str(Key(key_of(obj).namespace, name))] if name else []
