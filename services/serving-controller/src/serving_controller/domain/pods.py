"""Pods of a revision: whether they are ready, what keeps them, and how long their start took."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

from paddlewheel.contracts.crds.paddleservice import StartStatus
from paddlewheel.contracts.objects import status_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.core.log_reason import telling_lines
from paddlewheel.operator.domain.hindrance import container_statuses, find_hindrance
from serving_controller.domain.model import Raw

LINES = 5
LINE_LENGTH = 200


def is_ready(pod: Raw) -> bool:
    """It gets requests."""
    return _condition_time(pod, "Ready") is not None


def is_started(pod: Raw) -> bool:
    """Its containers run."""
    states = [container.get("state") or {} for container in status_of(pod).get("containerStatuses") or ()]
    return bool(states) and all("running" in state for state in states)


def trouble_of(pods: Iterable[Raw]) -> tuple[Reason, str] | None:
    """The first pod's hindrance, with the last lines that its container wrote; None when all are on their
    way."""
    for pod in sorted(pods, key=lambda p: str(p["metadata"]["name"])):
        hindrance = None if is_ready(pod) else find_hindrance(pod)
        if hindrance is not None:
            return hindrance.reason, _with_lines(hindrance.message, _last_words(pod))
    return None


def end_of(pods: Iterable[Raw]) -> str:
    """Why the container of a pod that is not ready ended before, also while it runs again.

    The text is that of `trouble_of` between two starts, so it does not change with the restarts. "" when no
    container has ended.
    """
    trouble = trouble_of(ended for pod in pods if (ended := _between_starts(pod)) is not None)
    return trouble[1] if trouble else ""


def _between_starts(pod: Raw) -> Raw | None:
    """The pod as it is while its ended containers wait for the next start; None when none has ended."""
    waiting = []
    for container in status_of(pod).get("containerStatuses") or ():
        states = [container.get(name) or {} for name in ("state", "lastState")]
        ended = next((state["terminated"] for state in states if "terminated" in state), None)
        if ended is not None:
            again = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended}}
            waiting.append({**container, **again})
    return {**pod, "status": {**status_of(pod), "containerStatuses": waiting}} if waiting else None


def start_of(pods: Iterable[Raw]) -> StartStatus | None:
    """How long the start of the newest ready pod took, by its parts; None when none is ready."""
    ready = [pod for pod in pods if is_ready(pod)]
    newest = max(ready, key=lambda p: str(p["metadata"].get("creationTimestamp", "")), default=None)
    return None if newest is None else _split(newest)


def _split(pod: Raw) -> StartStatus | None:
    created = parse_stamp(str(pod["metadata"].get("creationTimestamp", "")))
    scheduled, ready = _condition_time(pod, "PodScheduled"), _condition_time(pod, "Ready")
    started = [parse_stamp(text) for text in _started(pod)]
    if created is None or scheduled is None or ready is None or None in started or not started:
        return None
    pulled = max(time for time in started if time is not None)
    loaded = _condition_time(pod, "Initialized") or scheduled
    marks = [created, scheduled, max(scheduled, pulled), max(scheduled, pulled, loaded), ready]
    parts = [max(0.0, (after - before).total_seconds()) for before, after in pairwise(marks)]
    return StartStatus(scheduled=parts[0], pulled=parts[1], loaded=parts[2], ready=parts[3])


def _started(pod: Raw) -> list[str]:
    states = (c.get("state") or {} for c in status_of(pod).get("containerStatuses") or ())
    return [str((state.get("running") or {}).get("startedAt", "")) for state in states]


def _condition_time(pod: Raw, type_: str) -> datetime | None:
    """When the condition became true; None while it is not."""
    conditions = status_of(pod).get("conditions") or ()
    found = next((c for c in conditions if c["type"] == type_ and c["status"] == "True"), None)
    return parse_stamp(str(found.get("lastTransitionTime", ""))) if found else None


def _last_words(pod: Raw) -> list[str]:
    """Last lines of the container that ended last; the kubelet keeps them in its status."""
    for container in container_statuses(status_of(pod)):
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if lines := telling_lines(str(ended.get("message") or ""), LINES):
            return [line.strip()[:LINE_LENGTH] for line in lines]
    return []


def _with_lines(message: str, lines: list[str]) -> str:
    """The last line is in the message already."""
    more = [line for line in lines[:-1] if line not in message]
    return f"{message} (before it: {' | '.join(more)})" if more else message
