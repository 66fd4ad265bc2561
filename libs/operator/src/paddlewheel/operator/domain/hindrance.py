"""What keeps a pod from running, in one of our reasons, as its status says it."""

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
    """What keeps a pod from running. Its message does not change from one attempt to the next."""

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
"""By the kubelet's reason; any other is `Reason.CONTAINER_CANNOT_START`."""
_ON_ITS_WAY = ("", "ContainerCreating", "PodInitializing")
_NOT_SCHEDULED = {reason.value: reason for reason in (Reason.UNSCHEDULABLE, Reason.SCHEDULING_GATED)}
_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(: )?')
_PULL_REASON = re.compile(r"^(ErrImagePull|RegistryUnavailable|SignatureValidationFailed): ")
_SOURCE_ADDRESS = re.compile(r"[\w.:\[\]%]+:\d+->")


def find_hindrance(raw: Raw) -> Hindrance | None:
    """Of a pod that should run, as the API server gives it; None when it is on its way."""
    status: Raw = raw.get("status") or {}
    waiting = (_waiting(container) for container in container_statuses(status))
    unscheduled = (_unscheduled(condition) for condition in status.get("conditions") or ())
    return next((hindrance for hindrance in (*waiting, *unscheduled) if hindrance), None)


def _waiting(container: Raw) -> Hindrance | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    word = str(waiting.get("reason") or "")
    if word in _ON_ITS_WAY:
        return None
    # The source port is another one in each attempt.
    message = _SOURCE_ADDRESS.sub("", str(waiting.get("message") or ""))
    reason = _HINDRANCES.get(word)
    if reason is None:
        return Hindrance(Reason.CONTAINER_CANNOT_START, f"{word}: {message}".removesuffix(": "))
    return Hindrance(reason, _why_waiting(reason, container, message))


def _unscheduled(condition: Raw) -> Hindrance | None:
    reason = _NOT_SCHEDULED.get(str(condition.get("reason")))
    return Hindrance(reason, str(condition.get("message") or "")) if reason else None


def _why_waiting(reason: Reason, container: Raw, message: str) -> str:
    """Without what changes from one attempt to the next: back-off times and numbers of restarts."""
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
    """Of init containers, then of the others."""
    return (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
