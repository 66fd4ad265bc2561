"""Pods of former versions, whose gates wait for an annotation that the kubelet shows them as a file."""

from __future__ import annotations

from collections.abc import Iterator

from job_controller.core import names
from job_controller.core.model import Observed
from job_controller.core.pods import Pod
from paddlewheel.contracts.keys import Key
from paddlewheel.operator.domain.plan import Action, Patch


def opened_file_gates(seen: Observed, *, has_addresses: bool) -> tuple[Action, ...]:
    """The annotations with which such gates open.

    A gate that waits for names opens by itself, unless a scaling or the end of a rank has changed the names.
    """
    return tuple(_changes(seen, has_addresses=has_addresses))


def _changes(seen: Observed, *, has_addresses: bool) -> Iterator[Action]:
    for pod in seen.world_pods:
        if pod.terminating or pod.awaited is None:
            continue
        due = _due_value(seen, pod, has_addresses=has_addresses)
        if due not in ("", pod.awaited.value):
            change = {"metadata": {"annotations": {pod.awaited.annotation: due}}}
            yield Patch(names.POD, Key(seen.job.key.namespace, pod.name), change, names.BEFORE_PODS, pod.uid)


def _due_value(seen: Observed, pod: Pod, *, has_addresses: bool) -> str:
    if pod.awaited and pod.awaited.annotation == names.ANNOTATION_WAITS_FOR:
        return " ".join(seen.job.unfinished_names[pod.id.role])
    return "true" if has_addresses else ""
