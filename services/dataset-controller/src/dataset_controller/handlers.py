"""Changes of the cluster and of the bus's records -> which keys to wake. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable

from dataset_controller.domain.names import API_VERSION, STORAGE_CLASS
from dataset_controller.domain.objects import key_of, labels_of, spec_of
from dataset_controller.domain.sampleset.policies.labels import PREFIX
from dataset_controller.view import BY_LABEL, BY_RUN, BY_SECRET, BY_SET, BY_UID, View
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import RunKey
from paddlewheel.kube.ports import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    SAMPLE_JOBS,
    SAMPLE_SETS,
    SECRETS,
    Change,
    Object,
    Resource,
)

Wake = Callable[[Key], None]
RUNTIME_SUFFIX = "-runtime"


class Wakes:
    """Knows which sets and jobs a change is about."""

    def __init__(self, view: View, wake_set: Wake, wake_job: Wake) -> None:
        self._view = view
        self._wake_set = wake_set
        self._wake_job = wake_job

    def changed(self, resource: Resource, change: Change) -> None:
        """A watched object was added, modified or deleted."""
        obj = change.obj
        match resource:
            case _ if resource == SAMPLE_SETS:
                self._set_changed(key_of(obj))
            case _ if resource == SAMPLE_JOBS:
                self._job_changed(obj)
            case _ if resource == SECRETS:
                self._secret_changed(obj)
            case _ if resource == NODES:
                self._node_changed(obj)
            case _ if resource == PODS:
                self._pod_changed(obj)
            case _ if resource == PERSISTENT_VOLUMES:
                self._volume_changed(obj)
            case _ if resource != CSI_DRIVERS:
                self._child_changed(obj)

    def run_changed(self, run: RunKey) -> None:
        """The runtime wrote a run's state."""
        self.report_changed(run.set_uid)
        for job in self._view.of(SAMPLE_JOBS).by_index(BY_RUN, run.run_id):
            self._wake_job(key_of(job))

    def report_changed(self, set_uid: str) -> None:
        """An agent reported about its node."""
        for sample_set in self._view.of(SAMPLE_SETS).by_index(BY_UID, set_uid):
            self._wake_set(key_of(sample_set))

    def _set_changed(self, key: Key) -> None:
        self._wake_set(key)
        for job in self._view.of(SAMPLE_JOBS).by_index(BY_SET, str(key)):
            self._wake_job(key_of(job))

    def _job_changed(self, obj: Object) -> None:
        """The set's Secret for the runtime holds keys of jobs under way."""
        key = key_of(obj)
        self._wake_job(key)
        name = (spec_of(obj).get("sampleSetRef") or {}).get("name")
        if name:
            self._wake_set(Key(key.namespace, name))

    def _secret_changed(self, obj: Object) -> None:
        key = str(key_of(obj))
        for sample_set in self._view.of(SAMPLE_SETS).by_index(BY_SECRET, key):
            self._wake_set(key_of(sample_set))
        for job in self._view.of(SAMPLE_JOBS).by_index(BY_SECRET, key):
            self._job_changed(job)
        self._child_changed(obj)

    def _node_changed(self, obj: Object) -> None:
        for label in (name for name in labels_of(obj) if name.startswith(PREFIX)):
            for sample_set in self._view.of(SAMPLE_SETS).by_index(BY_LABEL, label):
                self._wake_set(key_of(sample_set))

    def _pod_changed(self, obj: Object) -> None:
        runtime = labels_of(obj).get("name", "")
        if runtime.endswith(RUNTIME_SUFFIX):
            self._wake_set(Key(key_of(obj).namespace, runtime.removesuffix(RUNTIME_SUFFIX)))

    def _volume_changed(self, obj: Object) -> None:
        claim = spec_of(obj).get("claimRef") or {}
        if spec_of(obj).get("storageClassName") == STORAGE_CLASS and claim.get("name"):
            self._wake_set(Key(str(claim.get("namespace", "")), str(claim["name"])))

    def _child_changed(self, obj: Object) -> None:
        for owner in obj["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == "SampleSet" and owner.get("apiVersion") == API_VERSION:
                self._wake_set(Key(key_of(obj).namespace, str(owner.get("name", ""))))
