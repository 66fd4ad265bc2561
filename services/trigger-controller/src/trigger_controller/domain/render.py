"""From a template and an event to the object to create."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paddlewheel.contracts.base import write_time
from trigger_controller.domain import names
from trigger_controller.domain.model import Creation, Gathered, Occurrence, Trigger

_PLACE = re.compile(r"(?<!\$)\$\((event|object|store|trigger)\.([A-Za-z]+)\)")
_COMMON = frozenset({"event.id", "event.type", "event.time", "event.count", "trigger.name"})
_OF_FACTS = _COMMON | {"object.name", "object.namespace", "object.uid"}
_OF_STORES = _COMMON | {"store.source", "store.bucket", "store.key"}

Replace = Callable[[str], str]


def template_problems(trigger: Trigger) -> tuple[str, ...]:
    """What is wrong with the template's `$(...)` names, as sentences that name the remedy."""
    when = trigger.spec.when
    known = _OF_STORES if when and when.object_store else _OF_FACTS
    used = {m[0]: f"{m[1]}.{m[2]}" for text in _texts(trigger) for m in _PLACE.finditer(text)}
    wrong = sorted(place for place, name in used.items() if name not in known)
    listed = ", ".join(f"$({name})" for name in sorted(known))
    return tuple(f"spec.create: {place} has no value here; use one of {listed}" for place in wrong)


def render_creation(trigger: Trigger, gathered: Gathered) -> Creation:
    """The object for these events; the same at every attempt."""
    template, event = trigger.template, gathered.newest
    values = _values(trigger, gathered)
    metadata = _filled(dict(template.metadata), lambda text: _fill(text, values))
    # Kubernetes itself replaces $(NAME) in commands and variables: what a stranger wrote stays text there.
    escapes = template.kind == names.PADDLE_JOB
    safe = {name: v.replace("$(", "$$(") for name, v in values.items()} if escapes else values
    manifest = {
        "apiVersion": names.API_VERSIONS[template.kind],
        "kind": template.kind,
        "metadata": {
            "namespace": trigger.key.namespace,
            "name": names.child_name(trigger.key.name, names.digest(trigger.uid, event.id)),
            "labels": {**(metadata.get("labels") or {}), names.LABEL_TRIGGER: trigger.key.name},
            "annotations": {**(metadata.get("annotations") or {}), **_marks(trigger, gathered)},
            "ownerReferences": [_owner(trigger)],
        },
        "spec": _filled(dict(template.spec), lambda text: _fill(text, safe)),
    }
    return Creation(template.kind, manifest, gathered)


def chain_of(trigger: Trigger, event: Occurrence) -> tuple[str, ...]:
    """The triggers that led to what is created for the event, this one included."""
    return (*event.chain, trigger.uid)


def _marks(trigger: Trigger, gathered: Gathered) -> dict[str, str]:
    return {
        names.ANNOTATION_EVENT: gathered.newest.id,
        names.ANNOTATION_EVENTS: str(gathered.events),
        names.ANNOTATION_CHAIN: ",".join(chain_of(trigger, gathered.newest)),
    }


def _owner(trigger: Trigger) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": trigger.key.name,
        "uid": trigger.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _values(trigger: Trigger, gathered: Gathered) -> dict[str, str]:
    event = gathered.newest
    return {
        "event.id": event.id,
        "event.type": event.type,
        "event.time": write_time(event.at),
        "event.count": str(gathered.events),
        "trigger.name": trigger.key.name,
        "object.name": event.name,
        "object.namespace": event.namespace,
        "object.uid": event.uid,
        "store.source": event.source,
        "store.bucket": event.bucket,
        "store.key": event.key,
    }


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace in one pass, so that a value is never looked into. Others' `$(NAME)` and `$$(...)` stay."""
    return _PLACE.sub(lambda m: values.get(f"{m[1]}.{m[2]}", m[0]), text)


def _filled(node: Any, replace: Replace) -> Any:
    if isinstance(node, str):
        return replace(node)
    if isinstance(node, Mapping):
        return {key: _filled(value, replace) for key, value in node.items()}
    return [_filled(item, replace) for item in node] if isinstance(node, list) else node


def _texts(trigger: Trigger) -> Iterator[str]:
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    _filled([dict(trigger.template.metadata), dict(trigger.template.spec)], note)
    return iter(found)
