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
"""On cluster-scoped objects, which cannot have an owner in a namespace."""
SET_LABEL = "paddlepaddle.org/sampleset"
"""On every child and runtime pod: the set's name, for `kubectl logs -l` and `kubectl delete pod -l`."""
VOLUME_ANNOTATION = "paddlepaddle.org/volume-uid"
"""On a claim: its volume, once Kubernetes' volume binder has noticed it."""
BIND_COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}
"""Kubernetes' own, on a claim whose volume is bound to it: its phase is left to the binder."""
TEMPLATE_ANNOTATION = "paddlepaddle.org/template"
"""On the runtime's StatefulSet: digest of the pod template that was rendered."""
SECRET_VERSION_ANNOTATION = "paddlepaddle.org/runtime-secret-version"  # noqa: S105 - a name, not a secret
"""On runtime pods: changing it makes the kubelet refresh the mounted Secret at once."""
DISCARD_ANNOTATION = "paddlepaddle.org/discard-staged-writes"
"""On a set that is being deleted or made smaller: nodes whose writes, which no store has, are given up for
that; their names, with commas between them."""
MANAGED_LABELS = {"app.kubernetes.io/managed-by": SERVICE}
"""On every child: only objects with it are watched."""
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
AUTHORITY = "ca.crt"
"""By this a runtime pod knows the bus."""
BUS_FILES = (AUTHORITY, "tls.crt", "tls.key")
"""Certificate and key with which a runtime pod connects to the bus, unless it shows a token."""


def bus_key(file: str) -> str:
    """The entry of the runtime's Secret that contains one of `BUS_FILES`."""
    return f"bus.{file}"


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
"""Its run was requested, and has not ended as far as its status says."""
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
    STAGED_WRITES = "StagedWrites"
    """On nodes that no partition is on any more."""
    READY = "Ready"
    FREE = "Free"
    """Only while the set is being deleted: nothing keeps it any more."""
    STARTED = "Started"
    OTHERS_CANCELLED = "OthersCancelled"
    COMPLETE = "Complete"
