"""Creates missing children, and updates the pods' template of an existing StatefulSet (replicas: see
`scaling`)."""

from __future__ import annotations

from typing import Any

from dataset_controller.domain import names
from dataset_controller.domain.invalid import Problem
from dataset_controller.domain.runs import SetIdentity
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import ObservedSet, RuntimeConfig, SetSpec
from dataset_controller.domain.sampleset.policies.ownership import is_ours
from dataset_controller.domain.sampleset.policies.staging import is_or_was_writeback
from dataset_controller.domain.sampleset.runtime import Runtime, held_partitions, startable
from paddlewheel.contracts.merge_patch import merge_patch
from paddlewheel.contracts.objects import Object, annotations_of, key_of, spec_of, status_of, uid_of
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import Action, Create, Delete, Patch


def decide_volume(seen: ObservedSet, spec: SetSpec) -> tuple[Action, ...]:
    """The claim is created as soon as the spec and its Secrets are valid, then the volume with the claim's
    uid.

    Kubernetes' volume binder has one worker for all claims of a cluster. With a volume that has only the name
    of its claim, the binder needs five requests and starts twice; with the uid it needs one request.

    A volume whose claim is gone is never bound to another claim, so both are created again.
    """
    volume, claim = seen.children.volume, seen.children.claim
    identity = seen.sample_set.identity
    if volume is not None and _is_of_another_claim(volume, claim):
        return _give_up(volume, claim, identity)
    if claim is None:
        return _claim_of(identity, volume)
    if volume is None:
        driver_secret = render.driver_secret_key(seen.runtime) if seen.has_csi else None
        return (Create(names.VOLUME, render.volume(identity, spec, driver_secret, uid_of(claim))),)
    return _announce(volume, claim)


def _is_of_another_claim(volume: Object, claim: Object | None) -> bool:
    """The volume is bound to a claim that is not the existing one. Before it is bound, it may have only the
    claim's name."""
    uid = _claim_uid(volume)
    return bool(uid) and (claim is None or uid != uid_of(claim))


def _claim_uid(volume: Object) -> str:
    return str((spec_of(volume).get("claimRef") or {}).get("uid") or "")


def _give_up(volume: Object, claim: Object | None, identity: SetIdentity) -> tuple[Action, ...]:
    """The volume is deleted when the binder reports that its claim is gone: our copy of the claim may be old.
    The data is retained. When it is bound to a claim that our copy does not have, the claim is created: the
    API server then reports whether another one has its name."""
    phase = status_of(volume).get("phase")
    if phase == "Bound" and claim is None:
        return _claim_of(identity, volume)
    if phase != "Released" or not is_ours(volume, identity.uid):
        return ()
    return (Delete(names.VOLUME, key_of(volume), uid_of(volume)),)


def _claim_of(identity: SetIdentity, volume: Object | None) -> tuple[Action, ...]:
    """A claim for an existing volume is created after the binder has noticed the volume: see `_announce`."""
    if volume is None:
        return (Create(names.CLAIM, render.claim(identity)),)
    is_noticed = status_of(volume).get("phase")
    return (Create(names.CLAIM, render.claim(identity, key_of(volume).name)),) if is_noticed else ()


def _announce(volume: Object, claim: Object) -> tuple[Action, ...]:
    """The binder checks a claim that it saw before the volume after 15 s, or when the claim changes. A claim
    with the annotation of another claim's volume would be lost."""
    uid = uid_of(volume)
    is_told = annotations_of(claim).get(names.VOLUME_ANNOTATION) == uid
    is_noticed = status_of(volume).get("phase") == "Bound" and _claim_uid(volume) == uid_of(claim)
    if is_told or not is_noticed or status_of(claim).get("phase") == "Bound":
        return ()
    patch = {"metadata": {"annotations": {names.VOLUME_ANNOTATION: uid, **names.BIND_COMPLETED}}}
    return (Patch(names.CLAIM, key_of(claim), patch, uid=uid_of(claim)),)


def find_unmountable(seen: ObservedSet, spec: SetSpec) -> Problem | None:
    """An option with which the CSI driver would never mount the volume that is to be created."""
    if seen.children.volume is not None or not seen.has_csi:
        return None
    for option in render.csi_options(spec):
        if option.count("=") > 1:
            return Problem(
                Reason.INVALID_SPEC,
                f"{option}: JuiceFS' CSI driver, which mounts the volume, takes no '=' in the value of an"
                " option; name it without",
            )
    return None


def decide_service(seen: ObservedSet, runtime: Runtime, *, has_keys: bool) -> tuple[Action, ...]:
    """The Service is created before the Secrets: they are not watched, so it shows that a set has some.

    Args:
        has_keys: the keys for the Secrets are known.
    """
    is_due = runtime.bound or (has_keys and seen.children.secret is None)
    is_kept = seen.is_in_old_place or find_old_layout(seen) is not None
    if seen.children.service is not None or is_kept or not is_due:
        return ()
    return (Create(names.SERVICE_KIND, render.service(seen.sample_set.identity, seen.runtime)),)


def decide_runtime(
    seen: ObservedSet, spec: SetSpec, runtime: Runtime, config: RuntimeConfig
) -> tuple[Action, ...]:
    """The StatefulSet is created when the claim is bound, unless nodes have other caches than the spec. An
    existing one gets the present template; one in its old place is moved instead.

    A partition that was to leave when its writes are uploaded has a pod for that.
    """
    if not runtime.bound or seen.is_in_old_place or find_old_layout(seen) is not None:
        return ()
    if seen.children.stateful_set is not None:
        return decide_template(seen, spec, config)
    if find_moved_cache(seen, spec) is not None:
        return ()
    leaving = held_partitions(seen, runtime) if is_or_was_writeback(seen.sample_set) else 0
    replicas = startable(seen, max(spec.partitions, leaving))
    made = render.stateful_set(seen.sample_set.identity, seen.runtime, spec, config, replicas)
    return (Create(names.STATEFUL_SET, made),)


def decide_template(seen: ObservedSet, spec: SetSpec, config: RuntimeConfig) -> tuple[Action, ...]:
    """The template of an existing StatefulSet is updated, unless its pods would then have other caches than
    the nodes have, or another mount path than the volume."""
    stateful_set = seen.children.stateful_set
    if stateful_set is None or seen.is_in_old_place:
        return ()
    if _is_elsewhere(seen) or find_moved_cache(seen, spec) is not None:
        return ()
    template = render.pod_template(seen.sample_set.identity, seen.runtime, spec, config)
    return _update(stateful_set, template)


def _update(stateful_set: Object, template: dict[str, Any]) -> tuple[Action, ...]:
    """Kubernetes then replaces the pods, one after the other. A field that is left out gets its default."""
    digest = render.template_digest(template)
    if annotations_of(stateful_set).get(names.TEMPLATE_ANNOTATION) == digest:
        return ()
    change = merge_patch(spec_of(stateful_set).get("template") or {}, template)
    patch = {
        "metadata": {"annotations": {names.TEMPLATE_ANNOTATION: digest}},
        "spec": {"template": change, "updateStrategy": render.ONE_BY_ONE},
    }
    return (Patch(names.STATEFUL_SET, key_of(stateful_set), patch),)


def find_old_layout(seen: ObservedSet) -> Problem | None:
    """A new runtime would mount at another path than the volume has: users would see a plain directory of
    their node, and write to it. A running runtime continues."""
    own, volume = seen.sample_set, seen.children.volume
    is_running = seen.children.stateful_set is not None and not seen.is_in_old_place
    if volume is None or is_running or not _is_elsewhere(seen):
        return None
    found, wanted = _host_path_of(volume), render.mount_path(own.uid)
    return Problem(
        Reason.VOLUME_LAYOUT_CHANGED,
        f"PersistentVolume {key_of(volume).name} is at {found}, runtimes now mount at {wanted}; delete the"
        f" set with its volume, and apply its manifest again (what is in the store stays):"
        f" kubectl -n {own.key.namespace} delete sampleset {own.key.name}",
    )


def find_moved_cache(seen: ObservedSet, spec: SetSpec) -> Problem | None:
    """The runtime's next pods would not have these directories: staged writes there would never be uploaded,
    and the directories would stay when the set is deleted. A running runtime continues."""
    dropped = [path for path in used_directories(seen) if path not in spec.cache.paths]
    if not dropped or _is_elsewhere(seen):
        return None
    key, why = seen.sample_set.key, ""
    if any(dropped[0].startswith(f"{path}/") for path in spec.cache.paths):
        why = " (a level is divided into directories of one size for all, by the sizes of all levels)"
    others = f" and {len(dropped) - 1} more" if len(dropped) > 1 else ""
    return Problem(
        Reason.CACHE_MOVED,
        f"spec.cache: nodes of the set have caches, and maybe writes that are not uploaded, in {dropped[0]}"
        f"{others}, which it would no longer use{why}; put it back, or delete the set and apply its"
        " manifest again (what is in the store stays):"
        f" kubectl -n {key.namespace} delete sampleset {key.name}",
    )


def used_directories(seen: ObservedSet) -> tuple[str, ...]:
    """The cache directories of the StatefulSet. Without one, those of the last StatefulSet."""
    stateful_set = seen.children.stateful_set
    return seen.status.cache_directories if stateful_set is None else tuple(_cache_directories(stateful_set))


def _cache_directories(stateful_set: Object) -> list[str]:
    """The cache directories in its pods' environment."""
    containers = spec_of(stateful_set)["template"]["spec"]["containers"]
    values = {each["name"]: each.get("value", "") for each in containers[0].get("env") or ()}
    return [path for path in values.get(render.CACHE_DIRECTORIES, "").split(":") if path]


def _is_elsewhere(seen: ObservedSet) -> bool:
    """A runtime would now mount at another path than the volume has."""
    found = None if seen.children.volume is None else _host_path_of(seen.children.volume)
    return found is not None and found != render.mount_path(seen.sample_set.uid)


def _host_path_of(volume: Object) -> str | None:
    """None for a volume of the CSI driver."""
    return (spec_of(volume).get("hostPath") or {}).get("path")
