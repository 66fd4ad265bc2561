"""Builders of Triggers and of the events that concern them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.events import make_event
from paddlewheel.contracts.generated.common_v1 import ObjectRef
from paddlewheel.contracts.generated.datasets_v1 import SampleJobSucceeded, SampleSetReady
from paddlewheel.contracts.generated.jobs_v1 import JobSucceeded
from paddlewheel.kube.ports import Object

READY = "paddlewheel.datasets.v1.SampleSetReady"
SAMPLE_JOB_SUCCEEDED = "paddlewheel.datasets.v1.SampleJobSucceeded"
JOB_SUCCEEDED = "paddlewheel.jobs.v1.JobSucceeded"
WARMUP: Object = {"spec": {"type": "warmup", "sampleSetRef": {"name": "digits"}}}


def make_trigger(name: str = "warm", namespace: str = "default", **spec: Any) -> Object:
    """A Trigger that warms `digits` when any set becomes ready; keywords replace parts of its spec."""
    least = {"when": {"fact": {"type": READY}}, "create": {"sampleJob": WARMUP}}
    return {
        "apiVersion": "events.paddlepaddle.org/v1alpha1",
        "kind": "Trigger",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**least, **spec},
    }


def make_store_trigger(name: str = "new-images", namespace: str = "default", **spec: Any) -> Object:
    """A Trigger that warms `digits` when an object of the bucket `images` changes."""
    when = {"objectStore": {"source": "images", "bucket": "images"}}
    return make_trigger(name, namespace, **({"when": when} | spec))


def make_ready(
    event_id: str, namespace: str = "default", name: str = "digits", *, time: datetime | None = None
) -> Event:
    """SampleSetReady of a set."""
    ref = ObjectRef(namespace=namespace, name=name, uid=f"uid-{name}")
    return make_event(
        SampleSetReady(sample_set=ref, partitions=1),
        id=event_id,
        source="test",
        namespace=namespace,
        uid=ref.uid,
        time=time or datetime.now(UTC),
    )


def make_job_succeeded(event_id: str, job: Object, *, time: datetime | None = None) -> Event:
    """The success of this very SampleJob or PaddleJob."""
    meta = job["metadata"]
    ref = ObjectRef(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])
    is_training = job.get("kind") == "PaddleJob"
    return make_event(
        JobSucceeded(job=ref) if is_training else SampleJobSucceeded(sample_job=ref, type="warmup"),
        id=event_id,
        source="test",
        namespace=ref.namespace,
        uid=ref.uid,
        time=time or datetime.now(UTC),
    )


def s3_record(key: str, *, bucket: str = "images", event: str = "s3:ObjectCreated:Put", n: int = 1) -> Object:
    """A record of an S3 event notification. `n` distinguishes changes of one key."""
    return {
        "eventVersion": "2.1",
        "eventSource": "minio:s3",
        "eventName": event,
        "eventTime": "2026-01-31T12:00:00.000Z",
        "s3": {
            "bucket": {"name": bucket},
            "object": {"key": key, "size": 3, "eTag": f"etag-{n}", "sequencer": f"00{n}"},
        },
    }


def s3_body(*records: Object) -> bytes:
    """The body of a store's post."""
    return json.dumps({"Records": list(records)}).encode()
