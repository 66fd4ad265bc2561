"""Facts as envelopes, and the registry of all types that may lie on the bus."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from types import ModuleType

from pydantic import BaseModel

from paddlewheel.contracts.base import WireModel
from paddlewheel.contracts.envelope import Event
from paddlewheel.contracts.generated import cache_v1, datasets_v1, jobs_v1
from paddlewheel.contracts.subjects import ENTITIES, event_subject, type_name
from paddlewheel.core.errors import Permanent

_RECORDS = ("Spec", "State", "Status")
"""What follows an entity's name in records that are not facts (RunSpec, RunState, NodeStatus)."""


def make_event(
    data: BaseModel,
    *,
    id: str,  # noqa: A002 - the CloudEvents word
    source: str,
    namespace: str,
    uid: str,
    time: datetime,
    traceparent: str = "",
) -> Event:
    """Put a fact into its envelope.

    Args:
        data: one of the models in `EVENTS`.
        id: deterministic (`Announcement.event_id`); the stream stores one message per id.
        source: name of the publishing service.
        namespace: of the object the fact is about.
        uid: of the object the fact is about.
        time: when the fact became true, aware.
        traceparent: W3C trace context, "" = none.

    Raises:
        Permanent: `data` is no fact, or namespace or uid cannot stand in a subject.
    """
    type_ = type_name(data)
    if type_ not in EVENTS:
        raise Permanent("UnknownType", f"{type_} is a record, not a fact")
    return Event(id, type_, source, event_subject(type_, namespace, uid), time, data, traceparent)


def _facts(module: ModuleType) -> Iterator[type[WireModel]]:
    for model in vars(module).values():
        if isinstance(model, type) and issubclass(model, WireModel) and _is_fact(model):
            yield model


def _is_fact(model: type[WireModel]) -> bool:
    if not model.proto_name:
        return False
    _, context, _, name = model.proto_name.split(".")
    facts = (name.removeprefix(e) for e in ENTITIES.get(context, ()) if name.startswith(e))
    return any(fact and fact not in _RECORDS for fact in facts)


EVENTS: dict[str, type[WireModel]] = {
    model.proto_name: model for module in (jobs_v1, datasets_v1, cache_v1) for model in _facts(module)
}
"""Type (proto full name) to model class, for every fact of every context."""
