"""Changes of pods that wait at their gates."""

from __future__ import annotations

from job_controller.core import names
from job_controller.core.model import Observed
from job_controller.features.start_gate.release import awaited_names, pods_to_release, pods_to_tell
from paddlewheel.contracts.keys import Key
from paddlewheel.operator.domain.plan import Action, Patch

_RELEASED = {"metadata": {"annotations": {names.ANNOTATION_RELEASED: "true"}}}


def releases(seen: Observed) -> tuple[Action, ...]:
    """The annotation that some pods wait for. It needs the ConfigMap with the addresses.

    A pod that cannot be created is no obstacle: it is one beyond those whose addresses are known.
    """
    namespace, needs = seen.job.key.namespace, names.BEFORE_PODS
    waiting = pods_to_release(seen)
    return tuple(Patch(names.POD, Key(namespace, p.name), _RELEASED, needs, p.uid) for p in waiting)


def changed_waits(seen: Observed) -> tuple[Action, ...]:
    """After scaling: update the list of names in pods that still wait for names."""
    job = seen.job
    awaited = {pod.uid: (pod, awaited_names(job, pod.id)) for pod in pods_to_tell(seen)}
    return tuple(
        Patch(
            names.POD,
            Key(job.key.namespace, pod.name),
            {"metadata": {"annotations": {names.ANNOTATION_WAITS_FOR: text}}},
            uid=uid,
        )
        for uid, (pod, text) in awaited.items()
    )
