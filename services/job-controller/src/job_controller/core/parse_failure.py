"""Parses why a pod has failed, and what makes it leave its node."""

from __future__ import annotations

from collections.abc import Iterable

from job_controller.core.pods import (
    Failure,
    Raw,
)
from paddlewheel.contracts.reasons import Reason
from paddlewheel.core.log_reason import reason_line
from paddlewheel.operator.domain.hindrance import container_statuses

_DISRUPTIONS = {
    "PreemptionByScheduler": Reason.PREEMPTED,
    "EvictionByEvictionAPI": Reason.EVICTED,
    "DeletionByTaintManager": Reason.NODE_LOST,
    "DeletionByPodGC": Reason.NODE_LOST,
}
"""Causes by the reason of a pod's condition `DisruptionTarget`."""
_BY_POD_REASON = {
    "Evicted": Reason.EVICTED,
    "Preempting": Reason.PREEMPTED,
    "NodeLost": Reason.NODE_LOST,
    "NodeShutdown": Reason.NODE_LOST,
    "Shutdown": Reason.NODE_LOST,
    "Terminated": Reason.NODE_LOST,
    "NodeAffinity": Reason.REJECTED_BY_NODE,
    "UnexpectedAdmissionError": Reason.REJECTED_BY_NODE,
    "TopologyAffinityError": Reason.REJECTED_BY_NODE,
}
"""Causes by the reason that the kubelet or a controller gives in a pod's status."""
_BY_KUBELET = "TerminationByKubelet"
_NO_ROOM = "OutOf"
"""The kubelet refused the pod: OutOfcpu, OutOfpods and so on."""


def terminated(raw: Raw) -> Iterable[tuple[str, Raw]]:
    """The ended containers of a pod: name and state."""
    for container in container_statuses(raw.get("status") or {}):
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            yield str(container.get("name", "")), ended


def first_container(raw: Raw) -> str:
    """The name of the container that trains, "" for none."""
    containers = (raw.get("spec") or {}).get("containers") or ()
    return str(containers[0].get("name", "")) if containers else ""


def failure_of(raw: Raw) -> Failure:
    """The failure of a pod, by its own status and the state of its containers."""
    name, status = str(raw["metadata"]["name"]), raw.get("status") or {}
    container, ended = _ended_badly(raw)
    if ended is None:
        reason = str(status.get("reason") or "Failed")
        why = reason_line(str(status.get("message") or ""))
        return Failure(name, reason, None, why, cause=disruption_of(raw) or Reason.POD_FAILED)
    cause = cause_of_end(ended)
    # The kernel killed the program: what it printed before is not the reason.
    text = "" if cause is Reason.OOM_KILLED else str(ended.get("message") or status.get("message") or "")
    return Failure(
        pod=name,
        reason=str(status.get("reason") or ended.get("reason") or "Error"),
        exit_code=int(ended["exitCode"]),
        last_line=reason_line(text),
        finished_at=str(ended.get("finishedAt") or ""),
        cause=disruption_of(raw) or cause,
        container="" if container == first_container(raw) else container,
    )


def _ended_badly(raw: Raw) -> tuple[str, Raw | None]:
    """The first container if it has an exit code, else another one. Init containers come last: one that runs
    beside the others is ended after them, and one that runs before them leaves them without an exit code."""
    inits, first = (
        {c.get("name") for c in (raw.get("spec") or {}).get("initContainers") or ()},
        first_container(raw),
    )
    ended = [(name, state) for name, state in terminated(raw) if state.get("exitCode")]
    return min(ended, key=lambda found: (found[0] != first, found[0] in inits), default=("", None))


def cause_of_end(ended: Raw) -> Reason:
    """The cause of the end of one container."""
    return Reason.OOM_KILLED if ended.get("reason") == "OOMKilled" else Reason.POD_FAILED


def disruption_of(raw: Raw) -> Reason | None:
    """The disruption that makes or made the pod leave its node, None for none."""
    status = raw.get("status") or {}
    targets = (c for c in status.get("conditions") or () if c.get("type") == "DisruptionTarget")
    named = next((c for c in targets if c.get("status") == "True"), None)
    said = str(status.get("reason") or "")
    by_pod = Reason.REJECTED_BY_NODE if said.startswith(_NO_ROOM) else _BY_POD_REASON.get(said)
    if named is None or named.get("reason") == _BY_KUBELET:
        # The kubelet's condition covers a shutdown, a pre-emption and pressure alike.
        return by_pod or (Reason.EVICTED if named else None)
    return _DISRUPTIONS.get(str(named.get("reason")), Reason.EVICTED)
