"""The choice of the kind of PodGroup of a job, and the part of the user's wish that has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.model import AUTO, Observed
from job_controller.core.parts import Gang
from paddlewheel.contracts.crds.paddlejob import GangKind, SchedulingPolicy

FIELD = "spec.schedulingPolicy"
_DEFAULT_SCHEDULER = "default-scheduler"
_BEYOND_NATIVE = {"queue": "queue", "priority_class": "priorityClass", "min_resources": "minResources"}
_NO_VOLCANO = (
    "Volcano is not installed (this cluster's API has no podgroups.scheduling.volcano.sh);"
    " install it, or remove the field from the templates"
)
_UNPLACED = "no scheduler places the pods, because their templates name volcano"
_NO_SCHEDULER = (
    "this cluster's API has no PodGroups of scheduling.k8s.io/v1alpha2 (feature gates GenericWorkload and"
    " GangScheduling); switch them on, or install Volcano and set schedulerName: volcano in the templates"
)
_OFF = "gang scheduling is switched off in this installation; ask its administrator"
_MIXED = "the templates name several schedulers; name the same one in all, or none"
_OTHER = "a template names another scheduler than volcano; name volcano or none"
_NOT_NATIVE = (
    "a template names the scheduler volcano, which does not know Kubernetes' own PodGroups; remove it"
)
_DEMANDED = "this installation makes a PodGroup of Volcano for every job"
_LATER = (
    "the pods were made without a gang; it takes effect for new pods, for example after a change of the"
    f" annotation {names.ANNOTATION_RESTART}"
)


def decide_gang(seen: Observed) -> Gang:
    """Decided by the job and the cluster. While there are pods, the kind is the kind of their creation."""
    fresh = choose_gang(seen.job, seen.gang_kinds, seen.gang_scheduling)
    kind = _kind_of_pods(seen)
    if not seen.pods or fresh.kind is kind:
        return fresh
    has_wish = seen.job.spec.scheduling_policy is not None
    is_late = has_wish and kind is GangKind.NONE and fresh.kind is not GangKind.NONE
    ignored = f"{FIELD} has no effect yet: {_LATER}" if is_late else fresh.ignored
    return replace(fresh, kind=kind, why="the pods were made so", ignored=ignored)


def _kind_of_pods(seen: Observed) -> GangKind:
    """The status may be older than the pods, since it is written after them."""
    own = next((group.kind for group in seen.pod_groups if group.is_own), None)
    recorded = seen.status.gang.kind if seen.status.gang else GangKind.NONE
    return recorded if own is None or seen.pod_group(recorded) else own


@dataclass(frozen=True)
class _Wish:
    """The fields of a job about its gang.

    Args:
        schedulers: that its templates name, "" for none.
        group: PodGroup that its templates name.
    """

    policy: SchedulingPolicy | None
    schedulers: frozenset[str]
    group: str

    @property
    def names_volcano(self) -> bool:
        return names.VOLCANO_SCHEDULER in self.schedulers

    @property
    def names_another(self) -> bool:
        return bool(self.schedulers - {"", names.VOLCANO_SCHEDULER})

    @property
    def asks_for_volcano(self) -> bool:
        return self.names_volcano or bool(self.policy and self.policy.queue)


def choose_gang(job: Job, installed: frozenset[GangKind], setting: str) -> Gang:
    """Whatever was chosen before.

    Args:
        setting: Auto, None, Volcano or Native.
    """
    wish = _wish_of(job)
    if wish.group:
        gang = _none(wish, f"the templates name PodGroup {wish.group}, which is used as it is")
    elif setting == AUTO:
        gang = _auto(wish, installed)
    elif setting == GangKind.VOLCANO:
        gang = _none(wish, _OTHER) if wish.names_another else Gang(GangKind.VOLCANO, why=_DEMANDED)
    else:
        gang = _native(wish) if setting == GangKind.NATIVE else _none(wish, _OFF)
    return replace(gang, least=least_pods(job, gang.kind))


def _auto(wish: _Wish, installed: frozenset[GangKind]) -> Gang:
    has_volcano = GangKind.VOLCANO in installed
    if wish.asks_for_volcano and has_volcano and not wish.names_another:
        field = "a template names the scheduler volcano" if wish.names_volcano else f"{FIELD}.queue is set"
        return Gang(GangKind.VOLCANO, why=f"{field}, and Volcano is installed")
    if wish.names_volcano and not has_volcano:
        return Gang(why=_NO_VOLCANO, ignored=f"{_UNPLACED}: {_NO_VOLCANO}")
    if wish.names_volcano:
        return _none(wish, _MIXED)
    return _native(wish) if GangKind.NATIVE in installed else _none(wish, _NO_SCHEDULER)


def _native(wish: _Wish) -> Gang:
    if wish.policy is None:
        return Gang()
    if wish.names_volcano:
        return _none(wish, _NOT_NATIVE)
    if len({name or _DEFAULT_SCHEDULER for name in wish.schedulers}) > 1:
        return _none(wish, _MIXED)
    unused = " and ".join(name for field, name in _BEYOND_NATIVE.items() if getattr(wish.policy, field))
    ignored = f"{FIELD}: {unused} without effect, for only Volcano knows it; remove it" if unused else ""
    why = f"{FIELD} is given, and the cluster's API has PodGroups of scheduling.k8s.io"
    return Gang(GangKind.NATIVE, why=why, ignored=ignored)


def _none(wish: _Wish, why: str) -> Gang:
    """No PodGroup. A user who asked for one gets the reason."""
    if wish.policy is None:
        return Gang()
    return Gang(why=why, ignored=f"{FIELD} has no effect: {why}")


def least_pods(job: Job, kind: GangKind) -> int:
    """Pods that are scheduled together: the number of the user, else the least number that can train."""
    policy = job.spec.scheduling_policy
    asked = policy.min_available if policy else None
    least = sum(job.least_of(role.name) for role in job.roles) if asked is None else asked
    # Kubernetes' own PodGroups refuse less.
    return max(1, least) if kind is GangKind.NATIVE else least


def _wish_of(job: Job) -> _Wish:
    groups = (group for role in job.roles for group in _named_groups(role.template))
    return _Wish(job.spec.scheduling_policy, job.schedulers, next(groups, ""))


def _named_groups(template: Mapping[str, Any]) -> Iterator[str]:
    """PodGroups that the user's template names."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    native = (template.get("spec") or {}).get("schedulingGroup") or {}
    found = (
        annotations.get(names.ANNOTATION_GROUP),
        annotations.get(names.ANNOTATION_VOLCANO_GROUP),
        native.get("podGroupName"),
    )
    return (str(name) for name in found if name)
