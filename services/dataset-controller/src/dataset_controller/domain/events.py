"""Kubernetes Events of both kinds."""

from __future__ import annotations

from dataset_controller.domain.names import Cond
from dataset_controller.domain.status import ObjectStatus
from paddlewheel.operator.domain.plan import KubernetesEvent


def refusal_events(before: ObjectStatus, after: ObjectStatus) -> tuple[KubernetesEvent, ...]:
    """A Warning for what is not accepted, once for each reason and message."""
    return warning_events(before, after, Cond.ACCEPTED)


def warning_events(before: ObjectStatus, after: ObjectStatus, type_: str) -> tuple[KubernetesEvent, ...]:
    """A Warning when the condition is False with a new reason or message."""
    old, new = before.condition(type_), after.condition(type_)
    if new is None or new.status == "True":
        return ()
    if old and (old.status, old.reason, old.message) == (new.status, new.reason, new.message):
        return ()
    return (KubernetesEvent("Warning", new.reason, new.message),)
