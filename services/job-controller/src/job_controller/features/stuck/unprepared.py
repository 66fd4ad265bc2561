"""Pods whose node does not get their volumes or network ready: only Kubernetes Events about them say why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from job_controller.core.model import Observed
from job_controller.core.pods import Pod
from job_controller.timing import POD_PREPARATION_GRACE_SECONDS
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.operator.domain.hindrance import Hindrance

_CAUSES = {
    "FailedMount": Reason.FAILED_MOUNT,
    "FailedMapVolume": Reason.FAILED_MOUNT,
    "FailedAttachVolume": Reason.FAILED_MOUNT,
    "FailedCreatePodSandBox": Reason.CONTAINER_CANNOT_START,
}
"""Causes by the reason of a Warning event about the pod."""
_SUMMARY = "Unable to attach or mount volumes"
"""How an event begins that repeats others without their cause."""
_ID = re.compile(r' ?"[0-9a-f]{32,}"')
"""The id of a sandbox, which changes with each attempt."""


def unprepared_pod(seen: Observed, now: datetime) -> Pod | None:
    """The first pod that waits longer than usual, unless something else is known to keep the job waiting."""
    if any(pod.hindrance for pod in seen.world_pods):
        return None
    return next((pod for pod in seen.world_pods if (due := _due(pod)) and due <= now), None)


def look_again_in(seen: Observed, now: datetime) -> float | None:
    """Seconds until a pod may have waited too long, or until Events may say something else."""
    waits = [
        due - now if due > now else timedelta(seconds=POD_PREPARATION_GRACE_SECONDS)
        for pod in seen.world_pods
        if (due := _due(pod))
    ]
    return min(waits).total_seconds() if waits else None


def find_cause(events: Iterable[Mapping[str, Any]]) -> Hindrance | None:
    """The cause in the Events about one pod. It does not change while the Events do not."""
    known = [event for event in events if event.get("reason") in _CAUSES]
    told = (_says(event) for event in known)
    return min(told, key=lambda each: (_SUMMARY in each.message, each.message), default=None)


def with_hindrance(seen: Observed, hindered: Pod, hindrance: Hindrance) -> Observed:
    """The same with what keeps one pod from running."""
    pods = (replace(pod, hindrance=hindrance) if pod is hindered else pod for pod in seen.pods)
    return replace(seen, pods=tuple(pods))


def _due(pod: Pod) -> datetime | None:
    since = parse_stamp(pod.unprepared_since)
    return since + timedelta(seconds=POD_PREPARATION_GRACE_SECONDS) if since else None


def _says(event: Mapping[str, Any]) -> Hindrance:
    return Hindrance(_CAUSES[event["reason"]], _ID.sub("", str(event.get("message") or "")))
