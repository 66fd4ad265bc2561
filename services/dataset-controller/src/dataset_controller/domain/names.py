"""Every name of this service: kinds, phases, conditions, finalizers, annotations.

Names shared with other services (node labels, claims, volumes) are in `paddlewheel.contracts.dataset_names`,
reasons in `paddlewheel.contracts.reasons`.
"""

from __future__ import annotations

from enum import StrEnum

SERVICE = "dataset-controller"
"""Source of facts and of Kubernetes Events."""

VOLUME = "PersistentVolume"
CLAIM = "PersistentVolumeClaim"
SECRET = "Secret"  # noqa: S105 - a kind, not a secret
SERVICE_KIND = "Service"
STATEFUL_SET = "StatefulSet"
POD = "Pod"
NODE = "Node"

API_VERSION = "batch.paddlepaddle.org/v1alpha1"
CREATED_BY = {"CreatedBy": "paddle-operator"}
"""The annotation of the published contract on generated objects."""
OWNER_ANNOTATION = "paddlepaddle.org/sampleset-uid"
"""The uid of the set, on objects outside its namespace, which cannot have it as their owner."""
SET_LABEL = "paddlepaddle.org/sampleset"
"""The label `<namespace>.<set>` of every child and runtime pod, for `kubectl logs -l` and the like."""
SET_ANNOTATION = SET_LABEL
"""The annotation `<namespace>/<set>`, in full length, of the objects of a runtime."""
VOLUME_ANNOTATION = "paddlepaddle.org/volume-uid"
"""The volume of a claim, when Kubernetes' volume binder has noticed it."""
BIND_COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}
"""Kubernetes' own, on a claim whose volume is bound to it: its phase is left to the binder."""
TEMPLATE_ANNOTATION = "paddlepaddle.org/template"
"""The digest of the rendered pod template, on the runtime's StatefulSet."""
SECRET_VERSION_ANNOTATION = "paddlepaddle.org/runtime-secret-version"  # noqa: S105 - a name, not a secret
"""An annotation of runtime pods: a change makes the kubelet refresh the mounted Secret at once."""
MOVE_ANNOTATION = "paddlepaddle.org/move-runtime"
"""With any value on a set: its runtime is moved to the namespace of the release while pods use the set."""
DISCARD_ANNOTATION = "paddlepaddle.org/discard-staged-writes"
"""The nodes, joined by commas, whose staged writes are given up, on a set that is being deleted or made
smaller."""
MANAGED_LABELS = {"app.kubernetes.io/managed-by": SERVICE}
"""The labels of every child: only objects with them are watched."""
MANAGED_SELECTOR = f"app.kubernetes.io/managed-by={SERVICE}"
RUNTIME_LABELS = {**MANAGED_LABELS, "app.kubernetes.io/component": "cache-runtime"}
STORAGE_CLASS = "paddle-operator"
CSI_DRIVER = "csi.juicefs.com"
RUNTIME_PORT = 7716

MOUNT_ROOT = "/var/lib/paddlewheel/mnt"
SECRETS_DIR = "/etc/paddlewheel/secrets"
STATE_DIR = "/run/paddlewheel"
"""The runtime pod's own files."""
BUS_DIR = "/etc/paddlewheel/bus"
AUTHORITY, CREDENTIALS = "ca.crt", "nats.creds"
"""The file by which a runtime pod recognizes the bus."""


def set_finalizer(name: str) -> str:
    """Keeps a SampleSet until its children are gone."""
    return f"paddlepaddle.org/sampleset-{name}"


def job_finalizer(name: str) -> str:
    """Keeps a SampleJob until its run is cancelled and its records are removed."""
    return f"paddlepaddle.org/samplejob-{name}"


class SetPhase(StrEnum):
    """`status.phase` of a SampleSet, in the order of the usual path."""

    NOT_BOUND = "NotBound"
    BOUND = "Bound"
    MOUNT = "Mount"
    SYNCING = "Syncing"
    SYNC_FAILED = "SyncFailed"
    PARTIAL_READY = "PartialReady"
    READY = "Ready"


class JobPhase(StrEnum):
    """`status.phase` of a SampleJob."""

    NEW = ""
    """Shown as Pending: no run was requested yet."""
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


BEGUN = (JobPhase.PENDING, JobPhase.RUNNING)
"""Its run was requested, and its end is not in the status."""
ENDED = (JobPhase.SUCCEEDED, JobPhase.FAILED)


class Cond:
    """Condition types."""

    ACCEPTED = "Accepted"
    RECONCILED = "Reconciled"
    MOUNTED = "Mounted"
    HEALTHY = "Healthy"
    SYNCED = "Synced"
    WARMED = "Warmed"
    CACHE_FITS = "CacheFits"
    SCALING = "Scaling"
    RUNTIME_MIGRATION_PENDING = "RuntimeMigrationPending"
    """Only while the runtime is still in the set's namespace, where earlier releases created it."""
    STAGED_WRITES = "StagedWrites"
    """The condition is about nodes without a partition."""
    READY = "Ready"
    FREE = "Free"
    """Only while the set is being deleted: True when nothing keeps it."""
    STARTED = "Started"
    OTHERS_CANCELLED = "OthersCancelled"
    COMPLETE = "Complete"
