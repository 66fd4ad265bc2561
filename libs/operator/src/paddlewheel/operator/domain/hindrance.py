"""The cause that keeps a pod from running, read from its status and expressed as one of our reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.log_reason import reason_line

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class Hindrance:
    """The cause that keeps a pod from running. Its message is the same after each failed attempt."""

    reason: Reason
    message: str = ""


_HINDRANCES = {
    **dict.fromkeys(
        (
            "ErrImagePull",
            "ImagePullBackOff",
            "ErrImageNeverPull",
            "ImageInspectError",
            "RegistryUnavailable",
            "SignatureValidationFailed",
        ),
        Reason.IMAGE_PULL_BACK_OFF,
    ),
    "InvalidImageName": Reason.INVALID_IMAGE_NAME,
    "CreateContainerConfigError": Reason.CONFIG_ERROR,
    "CrashLoopBackOff": Reason.CRASH_LOOP_BACK_OFF,
}
"""Our reason by the kubelet's reason. Any other reason becomes `Reason.CONTAINER_CANNOT_START`."""
_STARTING = ("", "ContainerCreating", "PodInitializing")
_NOT_SCHEDULED = {reason.value: reason for reason in (Reason.UNSCHEDULABLE, Reason.SCHEDULING_GATED)}
_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(: )?')
_PULL_REASON = re.compile(r"^(ErrImagePull|RegistryUnavailable|SignatureValidationFailed): ")
_SOURCE_ADDRESS = re.compile(r"[\w.:\[\]%]+:\d+->")


def find_hindrance(raw: Raw) -> Hindrance | None:
    """The cause that keeps a pod from running. None when the pod is starting as usual.

    Args:
        raw: the pod as the API server returns it.
    """
    status: Raw = raw.get("status") or {}
    waiting = (_waiting(container) for container in container_statuses(status))
    unscheduled = (_unscheduled(condition) for condition in status.get("conditions") or ())
    return next((hindrance for hindrance in (*waiting, *unscheduled) if hindrance), None)


def _waiting(container: Raw) -> Hindrance | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    kubelet_reason = str(waiting.get("reason") or "")
    if kubelet_reason in _STARTING:
        return None
    # Remove the source address, because its port changes with each attempt.
    message = _SOURCE_ADDRESS.sub("", str(waiting.get("message") or ""))
    reason = _HINDRANCES.get(kubelet_reason)
    if reason is None:
        return Hindrance(Reason.CONTAINER_CANNOT_START, f"{kubelet_reason}: {message}".removesuffix(": "))
    return Hindrance(reason, _why_waiting(reason, container, message))


def _unscheduled(condition: Raw) -> Hindrance | None:
    reason = _NOT_SCHEDULED.get(str(condition.get("reason")))
    return Hindrance(reason, str(condition.get("message") or "")) if reason else None


def _why_waiting(reason: Reason, container: Raw, message: str) -> str:
    """The message without the parts that change with each attempt: back-off times and restart counts."""
    if reason in (Reason.IMAGE_PULL_BACK_OFF, Reason.INVALID_IMAGE_NAME):
        why = _PULL_REASON.sub("", _BACK_OFF.sub("", message))
        text = f'cannot pull image "{container.get("image", "")}"'
        return f"{text}: {why}" if why else text
    if reason is Reason.CRASH_LOOP_BACK_OFF:
        ended = (container.get("lastState") or {}).get("terminated") or {}
        line = reason_line(str(ended.get("message") or ""))
        text = f"container {container.get('name', '')} ended with exit code {ended.get('exitCode', '?')}"
        return f"{text}: {line}" if line else text
    return message


def container_statuses(status: Raw) -> Iterable[Raw]:
    """The statuses of init containers, then of the other containers."""
    return (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
