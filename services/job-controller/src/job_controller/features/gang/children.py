"""Actions on a job's PodGroups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from job_controller.core import names
from job_controller.core.gate import Gate
from job_controller.core.model import Observed
from job_controller.core.parts import Gang, PodGroup
from job_controller.features.gang.render import render_pod_group, volcano_spec
from job_controller.features.gang.resources import are_equal
from job_controller.features.gang.rules import fits
from paddlewheel.contracts.crds.paddlejob import GangKind
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import Action, Create, Delete, Patch

CHILD = {GangKind.NATIVE: names.POD_GROUP, GangKind.VOLCANO: names.VOLCANO_POD_GROUP}
"""The executor's kind for each kind of gang."""
_WITHOUT_PODS = frozenset({Reason.SUSPENDED, Reason.SCALED_TO_ZERO})
_DEFAULT_QUEUE = "default"


def delete_pod_groups(seen: Observed, but: GangKind = GangKind.NONE) -> tuple[Action, ...]:
    """Own ones of every kind but one. A native one goes when its last pod has ended."""
    own = (group for group in seen.pod_groups if group.is_own and not group.is_going)
    return tuple(_delete(seen, group) for group in own if group.kind is not but)


def gated_actions(seen: Observed, gang: Gang, gate: Gate) -> tuple[Action, ...]:
    """While no pods are created: a gang waits in Volcano's queue with its PodGroup, and takes no place in it
    while it cannot start for another reason."""
    if gate.reason is Reason.GANG_NOT_ENQUEUED:
        return gang_actions(seen, gang)
    return delete_pod_groups(seen) if gate.reason in _WITHOUT_PODS else ()


def gang_actions(seen: Observed, gang: Gang) -> tuple[Action, ...]:
    """Make the PodGroup what the job asks for; others of the job's go."""
    return (*delete_pod_groups(seen, but=gang.kind), *_wanted(seen, gang))


def _wanted(seen: Observed, gang: Gang) -> tuple[Action, ...]:
    if gang.kind is GangKind.NONE or seen.waits_for_former:
        return ()
    group = seen.pod_group(gang.kind)
    if group is None:
        # Without its kind in the API, it fails and is shown, unless the pods are there and need it no more.
        is_pointless = gang.kind not in seen.gang_kinds and bool(seen.pods)
        return () if is_pointless else (Create(CHILD[gang.kind], render_pod_group(seen.job, gang)),)
    if not group.is_own or group.is_going:
        return ()
    return _change(seen, gang, group)


def _change(seen: Observed, gang: Gang, group: PodGroup) -> tuple[Action, ...]:
    if group.kind is GangKind.NATIVE:
        return () if seen.pods or fits(group, gang) else (_delete(seen, group),)
    changes = _changes(group.spec, volcano_spec(seen.job, gang))
    if not changes:
        return ()
    return (Patch(names.VOLCANO_POD_GROUP, seen.job.key, {"spec": changes}, uid=group.uid),)


def _changes(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch of what differs; Volcano fills in its default queue."""
    changes = {
        field: wanted.get(field, absent)
        for field, absent in (("minMember", 0), ("queue", _DEFAULT_QUEUE), ("priorityClassName", None))
        if (found.get(field) or absent) != wanted.get(field, absent)
    }
    had, needs = found.get("minResources") or {}, wanted["minResources"]
    if are_equal(had, needs):
        return changes
    return {**changes, "minResources": {**dict.fromkeys(had), **needs}}


def _delete(seen: Observed, group: PodGroup) -> Delete:
    is_volcanos = group.kind is GangKind.VOLCANO
    return Delete(CHILD[group.kind], seen.job.key, group.uid, vanishes=is_volcanos)
