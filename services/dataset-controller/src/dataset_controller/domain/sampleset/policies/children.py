"""Which children are still missing. Nothing that exists is rewritten but the replicas (see `scaling`)."""

from __future__ import annotations

from dataset_controller.domain.actions import Action, Create
from dataset_controller.domain.objects import status_of
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import ObservedSet, RuntimeConfig
from dataset_controller.domain.sampleset.spec import SetSpec
from dataset_controller.domain.sampleset.world import World


def decide_volume(seen: ObservedSet, spec: SetSpec) -> tuple[Action, ...]:
    """The volume as soon as the spec and its Secrets are good, then the claim.

    The claim waits until Kubernetes' binder has taken note of the volume: one that it sees first is looked at
    again only after 15 s.
    """
    volume, claim = seen.children.volume, seen.children.claim
    if volume is None:
        return (Create("PersistentVolume", render.volume(seen.identity, spec, seen.has_csi)),)
    if claim is None and status_of(volume).get("phase"):
        return (Create("PersistentVolumeClaim", render.claim(seen.identity)),)
    return ()


def decide_runtime(
    seen: ObservedSet, spec: SetSpec, world: World, config: RuntimeConfig
) -> tuple[Action, ...]:
    """Service and StatefulSet, once the claim is bound."""
    if not world.bound:
        return ()
    actions: list[Action] = []
    if seen.children.service is None:
        actions.append(Create("Service", render.service(seen.identity)))
    if seen.children.stateful_set is None:
        actions.append(Create("StatefulSet", render.stateful_set(seen.identity, spec, config)))
    return tuple(actions)
