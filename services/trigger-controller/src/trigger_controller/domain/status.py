"""The status as JSON, and its conditions."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from paddlewheel.contracts.base import write_time
from paddlewheel.contracts.conditions import Condition, render_conditions, set_condition
from trigger_controller.domain.model import ChildRef, Gathered, Raw, Refused, Status, Trigger

_OPTIONAL = ("lastFiredTime", "lastChild", "waiting", "firing", "refused")
"""Fields that go away again: a merge patch has to say so."""


def with_condition(trigger: Trigger, status: Status, condition: Condition, now: datetime) -> Status:
    """Put one condition, stamped with the generation it was decided for."""
    stamped = replace(condition, observed_generation=trigger.generation)
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return replace(status, conditions=set_condition(status.conditions, stamped, at))


def find_condition(status: Status, type_: str) -> Condition | None:
    """The condition of this type."""
    return next((c for c in status.conditions if c.type == type_), None)


def status_patch(old: Raw, status: Status) -> dict[str, Any]:
    """Merge patch from `old` to `status`; empty when nothing changed."""
    new = _render(status)
    gone: dict[str, Any] = {name: None for name in _OPTIONAL if name in old and name not in new}
    return gone | {name: _patched(old.get(name), v) for name, v in new.items() if old.get(name) != v}


def _patched(old: Any, new: Any) -> Any:
    """A merge patch keeps fields of an object that it does not name: name those that are gone."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {name: None for name in old if name not in new} | {
        name: _patched(old.get(name), value) for name, value in new.items()
    }


def _render(status: Status) -> dict[str, Any]:
    rendered: dict[str, Any] = {
        "lastFiredTime": write_time(status.last_fired) if status.last_fired else None,
        "lastEvent": status.last_event or None,
        "lastChild": _child(status.last_child),
        "waiting": _gathered(status.waiting),
        "firing": _gathered(status.firing),
        "refused": _refused(status.refused),
        "recent": list(status.recent) or None,
    }
    return {
        "observedGeneration": status.observed_generation,
        "conditions": render_conditions(status.conditions),
        "events": status.events,
        "skipped": status.skipped,
        "fired": status.fired,
        "active": status.active,
        **{name: value for name, value in rendered.items() if value is not None},
    }


def _gathered(gathered: Gathered | None) -> dict[str, Any] | None:
    if gathered is None:
        return None
    event = gathered.newest
    texts = {
        "id": event.id,
        "type": event.type,
        "time": write_time(event.at),
        "objectNamespace": event.namespace,
        "objectName": event.name,
        "objectUid": event.uid,
        "storeSource": event.source,
        "storeBucket": event.bucket,
        "storeKey": event.key,
        "chain": list(event.chain),
    }
    return {
        "events": gathered.events,
        "since": write_time(gathered.since),
        "until": write_time(gathered.until),
        "newest": {name: value for name, value in texts.items() if value},
    }


def _refused(refused: Refused | None) -> dict[str, Any] | None:
    if refused is None:
        return None
    return {"generation": refused.generation, "retryAt": write_time(refused.retry_at)}


def _child(child: ChildRef | None) -> dict[str, Any] | None:
    return {"kind": child.kind, "name": child.name, "uid": child.uid} if child else None
