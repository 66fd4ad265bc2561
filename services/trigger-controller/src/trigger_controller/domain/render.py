"""Renders the object to create from a template and the events."""

from __future__ import annotations

from typing import Any

from paddlewheel.contracts.crds.trigger import StatusEvent, StatusGathered
from trigger_controller.domain import names
from trigger_controller.domain.model import Raw, Trigger
from trigger_controller.domain.template import escaped, fill, values_of


def render_child(trigger: Trigger, gathered: StatusGathered) -> Raw:
    """The object for these events. It is the same in all attempts."""
    template = trigger.template
    values = values_of(trigger.key.name, gathered)
    metadata = fill(template.metadata, values)
    return {
        "apiVersion": names.API_VERSIONS[template.kind],
        "kind": template.kind,
        "metadata": {
            "namespace": trigger.key.namespace,
            "name": child_name(trigger, gathered.newest),
            "labels": {**(metadata.get("labels") or {}), names.LABEL_TRIGGER: trigger.key.name},
            "annotations": {**(metadata.get("annotations") or {}), **_annotations(trigger, gathered)},
            "ownerReferences": [_owner(trigger)],
        },
        "spec": fill(template.spec, escaped(values) if template.kind == names.PADDLE_JOB else values),
    }


def child_name(trigger: Trigger, event: StatusEvent) -> str:
    """The name of the object for the event."""
    return names.child_name(trigger.key.name, trigger.uid, event.id)


def _annotations(trigger: Trigger, gathered: StatusGathered) -> dict[str, str]:
    return {
        names.ANNOTATION_EVENT: gathered.newest.id,
        names.ANNOTATION_EVENTS: str(gathered.events),
        names.ANNOTATION_CHAIN: ",".join((*gathered.newest.chain, trigger.uid)),
    }


def _owner(trigger: Trigger) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.TRIGGER,
        "name": trigger.key.name,
        "uid": trigger.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
