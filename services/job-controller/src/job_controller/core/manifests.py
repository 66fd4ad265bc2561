"""Parts of the manifests of children."""

from __future__ import annotations

from typing import Any

from job_controller.core import names
from job_controller.core.job import Job, Manifest


def child_metadata(job: Job, name: str, labels: dict[str, str]) -> Manifest:
    """The metadata of a child of the job."""
    return {
        "name": name,
        "namespace": job.key.namespace,
        "labels": {**labels, names.LABEL_JOB: job.key.name},
        "ownerReferences": [_owner(job)],
    }


def _owner(job: Job) -> Manifest:
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "name": job.key.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def append_unless(holder: Manifest, field: str, item: Manifest, identity: str) -> None:
    """Add to a list unless the user's own entry already has the same identity."""
    items: list[dict[str, Any]] = list(holder.get(field) or ())
    if all(i.get(identity) != item[identity] for i in items):
        items.append(item)
    holder[field] = items
