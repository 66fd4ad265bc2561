"""An example of each type of message, encoded by our own models and wire code."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.gen.catalog import Catalog, Fact, Field, Shape
from paddlewheel.contracts.gen.protos import PACKAGE, module_of
from paddlewheel.contracts.wire import encode, from_json, to_json

AT = datetime(2026, 3, 2, 9, 14, 7, 250000, tzinfo=UTC)
NAMESPACE = "team-a"
UID = "5d0c2b1e-7c1f-4f0a-9a53-2f6f0c9b7a11"
_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

_WORDS: Mapping[str, Any] = {
    "namespace": NAMESPACE,
    "set_namespace": NAMESPACE,
    "name": "digits",
    "set_name": "digits",
    "sample_set": "digits",
    "uid": UID,
    "set_uid": UID,
    "generation": 1,
    "resource_version": "48213",
    "run_id": "r-6f1c0a7d",
    "mode": "Collective",
    "type": "sync",
    "operation": "sync",
    "source": "s3://digits",
    "key": "train/0001.png",
    "bucket": "digits",
    "node": "node-1",
    "master": "digits-runtime-0",
    "agent": "digits-runtime-0",
    "path": "train/0001.png",
    "phase": "RUN_PHASE_SUCCEEDED",
    "wanted": 2,
    "running": 2,
    "partitions": 2,
    "partition": 1,
    "files": 1797,
    "files_done": 900,
    "files_total": 1797,
    "total_files": 1797,
    "bytes": 220329,
    "bytes_done": 110250,
    "bytes_total": 220329,
    "total_bytes": 220329,
    "cached_bytes": 220329,
    "cached_percent": 100.0,
    "eta_seconds": 3.5,
    "seconds": 15.0,
    "listed": True,
    "event_id": f"{UID}/SampleSetReady/0",
    "event_type": "paddlewheel.datasets.v1.SampleSetReady",
    "events": 1,
    "kind": "PaddleJob",
    "etag": "9e107d9d372bb6826bd81d3542a419d6",
    "sequencer": "0055AED6DCD90281E5",
    "size": 1024,
    "service": "job-controller",
    "replica": "job-controller-6c9f7d-x2x8q",
}
"""Name of a field to its value in examples, unless `_OWN` has another value for the message."""

_OWN: Mapping[str, Mapping[str, Any]] = {
    "JobAccepted": {"replicas": {"worker": 2}},
    "JobGated": {
        "reason": "SampleSetNotReady",
        "message": "pods are created when SampleSet team-a/digits is Ready",
    },
    "JobStarting": {"replicas": {"worker": 2}},
    "JobStuck": {
        "reason": "ImagePullBackOff",
        "message": 'pod digits-worker-0: cannot pull image "example/digits:2": not found',
    },
    "JobRunning": {"roles": {"worker": {"wanted": 2, "running": 2}}},
    "JobProgressed": {
        "step": 1200,
        "total_steps": 5000,
        "epoch": 2,
        "total_epochs": 8,
        "loss": 0.31,
        "samples_per_second": 1840.5,
        "metrics": {"learning_rate": 0.01},
        "eta_seconds": 95.0,
    },
    "JobSucceeded": {
        "roles": {"worker": {"wanted": 2, "succeeded": 2}},
        "results": {"accuracy": 0.9944, "epochs": 8.0, "loss": 0.007},
    },
    "JobFailed": {
        "roles": {"worker": {"wanted": 2, "running": 1, "failed": 1}},
        "reason": "PodFailed",
        "message": "pod digits-worker-1 failed (Error, exit code 1): OSError: /data/train is empty",
    },
    "SampleSetSyncFailed": {
        "reason": "FilesFailed",
        "message": "1 files could not be done: train/0001.png: access denied",
    },
    "SampleSetDegraded": {"reason": "PartitionsNotReady", "message": "1 of 2 partitions are ready"},
    "SampleJobSucceeded": {"type": "warmup"},
    "SampleJobFailed": {"reason": "Cancelled", "message": "the run was cancelled"},
    "RunEnded": {"operation": "warmup", "reason": "", "message": ""},
    "NodeUnmounted": {"message": "the mount does not answer"},
    "RebuildReport": {"objects": 500, "facts_checked": 1893, "facts_published": 1893},
    "RunSpec": {"warmup": {"strategy": "sequence", "threads": 50}},
    "ObjectCreated": {"source": "digits-store", "event_name": "s3:ObjectCreated:Put"},
    "ObjectRemoved": {"source": "digits-store", "event_name": "s3:ObjectRemoved:Delete"},
    "RevisionMeasured": {"revision": "digits-5f6a7b8c9d", "metrics": {"accuracy": 0.97, "latency_ms": 12.0}},
    "TriggerFailed": {"reason": "Forbidden", "message": "exceeded quota: pods"},
}
"""Message to the values of its fields. Fields that are neither here nor in `_WORDS` have their defaults."""


def body(catalog: Catalog, shape: Shape) -> dict[str, Any]:
    """The body of an example, as our models write it."""
    return dict(orjson.loads(to_json(_filled(catalog, shape))))


def headers(catalog: Catalog, fact: Fact) -> dict[str, str]:
    """The headers of a fact's example."""
    id_ = f"{UID}/{fact.shape.name}/0"
    event = make_event(
        _filled(catalog, fact.shape),
        id=id_,
        source=fact.publisher,
        namespace=NAMESPACE,
        uid=UID,
        time=AT,
        traceparent=_TRACE,
    )
    return encode(event)[1]


def _filled(catalog: Catalog, shape: Shape) -> WireModel:
    package, _, name = shape.full_name.rpartition(".")
    model: type[WireModel] = getattr(importlib.import_module(f"{PACKAGE}.{module_of(package)}"), name)
    return from_json(model, orjson.dumps(_members(catalog, shape)))


def _members(catalog: Catalog, shape: Shape) -> dict[str, Any]:
    own = _OWN.get(shape.name, {})
    values = {f.name: own[f.name] if f.name in own else _guess(catalog, f) for f in shape.fields}
    return {name: value for name, value in values.items() if value is not None}


def _guess(catalog: Catalog, field: Field) -> Any:
    """The value of a field; None = the default."""
    if field.value.scalar == "timestamp":
        return "2026-03-02T09:14:07.250Z"
    if field.value.scalar:
        return None if field.many else _WORDS.get(field.name)
    inner = catalog.shapes[field.value.shape]
    if field.many or inner.words:
        return _WORDS.get(field.name) if inner.words and not field.many else None
    return None if inner.name.endswith("Operation") else _members(catalog, inner)
