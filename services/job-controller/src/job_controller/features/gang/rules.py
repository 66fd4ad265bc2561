"""The wait of a job for its gang, and the pods that take part in the gang."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from job_controller.core import names
from job_controller.core.gate import Gate
from job_controller.core.job_status import GangStatus
from job_controller.core.model import Observed
from job_controller.core.parts import Gang, PodGroup
from job_controller.core.phase import missing_pods
from job_controller.core.pods import ENDED, Pod
from job_controller.features.gang.choice import FIELD, least_pods
from paddlewheel.contracts.crds.paddlejob import GangKind
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.hindrance import Hindrance
from paddlewheel.operator.domain.plan import shorten

_LET_IN = frozenset({"Inqueue", "Running"})
"""Phases of Volcano's PodGroups in which pods may be created."""
_DEFAULT_QUEUE = "default"
_WAITS_FOR_OTHERS = "waiting for minCount pods from a gang"
"""In the scheduler's words about a pod that has room, while others of its gang have none."""
_INSUFFICIENT = re.compile(r"Insufficient (\S+?)[.,;]?(?=\s|$)")


def gang_gate(seen: Observed, gang: Gang) -> Gate | None:
    """Closed until Volcano lets the PodGroup in the first time, and while the gang can never be whole."""
    total = len(seen.job.pod_ids)
    if gang.kind is GangKind.NONE or seen.has_begun or (not missing_pods(seen) and gang.least <= total):
        return None
    if gang.least > total:
        message = f"{FIELD}.minAvailable is {gang.least}, and the job has {total} pods; lower it"
        return Gate(False, Reason.GANG_TOO_LARGE, message)
    was_admitted = seen.status.condition(names.CONDITION_ADMITTED) == "True"
    if was_admitted or seen.pods or is_let_in(seen, gang.kind):
        return None
    return Gate(False, Reason.GANG_NOT_ENQUEUED, not_let_in(seen))


def is_let_in(seen: Observed, kind: GangKind) -> bool:
    """Volcano has room for the gang in its queue; the native scheduler holds the pods themselves."""
    group = seen.pod_group(kind)
    return kind is not GangKind.VOLCANO or (group is not None and group.phase in _LET_IN)


def not_let_in(seen: Observed) -> str:
    """The message of a gang that waits."""
    group = seen.pod_group(GangKind.VOLCANO)
    if group is None:
        return "pods are created when Volcano admits the job's PodGroup, which is being made"
    queue = group.spec.get("queue") or _DEFAULT_QUEUE
    said = f": {group.message}" if group.message else ""
    text = f"pods are created when Volcano admits PodGroup {seen.job.key} to queue {queue}"
    return shorten(f"{text}; it is {group.phase or 'new'}{said}")


def waits_for_group(seen: Observed, gang: Gang) -> bool:
    """New pods would meet the PodGroup of a former world, or are not admitted yet."""
    if gang.kind is GangKind.NONE or seen.pods:
        return False
    group = seen.pod_group(gang.kind)
    return not is_let_in(seen, gang.kind) or (group is not None and not fits(group, gang))


def fits(group: PodGroup, gang: Gang) -> bool:
    """A native PodGroup cannot be changed: one of another size, or that is going, has to go first."""
    if group.kind is not GangKind.NATIVE:
        return not group.is_going
    return not group.is_going and native_size(group) == gang.least


def native_size(group: PodGroup) -> int:
    """The number in the PodGroup of pods that are scheduled together."""
    policy = (group.spec.get("schedulingPolicy") or {}).get("gang") or {}
    return int(policy.get("minCount") or 0)


def is_misfit(seen: Observed) -> bool:
    """The pods of a native gang wait for another number than the job asks for now. Their group cannot be
    changed, so they would wait forever, or start without the others."""
    recorded, group = seen.status.gang, seen.pod_group(GangKind.NATIVE)
    if recorded is None or recorded.kind is not GangKind.NATIVE or group is None or seen.has_begun:
        return False
    return native_size(group) != least_pods(seen.job, GangKind.NATIVE)


def joins(seen: Observed, gang: Gang) -> GangKind:
    """The gang that pods take part in that are made now, NONE when they are scheduled by themselves.

    The native scheduler holds a pod until the whole gang has living pods. So one that takes the place of
    another when some have succeeded already would wait forever.
    """
    if gang.kind is not GangKind.NATIVE:
        return gang.kind
    group = seen.pod_group(GangKind.NATIVE)
    outside = [pod for pod in _living(seen) if not pod.group]
    coming = len(frozenset(seen.job.world) - seen.succeeded) - len(outside)
    is_whole = coming >= (native_size(group) if group else gang.least)
    return GangKind.NATIVE if is_whole else GangKind.NONE


def _living(seen: Observed) -> list[Pod]:
    return [p for p in seen.world_pods if not p.terminating and not p.given_up and p.state not in ENDED]


def gang_status(seen: Observed, gang: Gang, *, has_ended: bool) -> GangStatus | None:
    """The value of `status.gang`. None for jobs that do not ask for a gang."""
    if gang.kind is GangKind.NONE:
        return GangStatus(gang.kind, message=gang.why) if gang.why else None
    phase = "" if has_ended else _phase(seen, gang)
    return GangStatus(gang.kind, seen.job.key.name, gang.least, phase, gang.why)


def _phase(seen: Observed, gang: Gang) -> str:
    """The condition of a native PodGroup stays as it was when the job is restarted, so pods decide."""
    if gang.kind is GangKind.NATIVE:
        placed = sum(1 for pod in _living(seen) if pod.node) + len(seen.succeeded)
        return "Scheduled" if placed >= gang.least else "Pending"
    group = seen.pod_group(gang.kind)
    return group.phase if group else ""


def gang_hindrance(seen: Observed) -> Pod | None:
    """The first pod of a native gang that finds no room, with what that means for the whole gang."""
    gang = seen.status.gang
    if gang is None or gang.kind is not GangKind.NATIVE:
        return None
    pods = [pod for pod in _living(seen) if pod.group]
    if not all(pod.node or pod.hindrance for pod in pods):
        # The scheduler reports on one pod after the other.
        return None
    homeless = [pod for pod in pods if not pod.node and _finds_no_room(pod)]
    short = gang.min_available - (len(pods) - len(homeless))
    if not homeless or short < 1:
        return None
    return replace(homeless[0], hindrance=_shortage(gang.min_available, short, homeless))


def _finds_no_room(pod: Pod) -> bool:
    hindrance = pod.hindrance
    is_unscheduled = hindrance is not None and hindrance.reason is Reason.UNSCHEDULABLE
    return is_unscheduled and hindrance is not None and _WAITS_FOR_OTHERS not in hindrance.message


def _shortage(least: int, short: int, homeless: Iterable[Pod]) -> Hindrance:
    said = [(pod.name, pod.hindrance.message) for pod in homeless if pod.hindrance]
    lacking = sorted({resource for _, words in said for resource in _INSUFFICIENT.findall(words)})
    pods = "1 pod" if short == 1 else f"{short} pods"
    on = f" on {' and '.join(lacking)}" if lacking else ""
    name, words = said[0]
    why = "free room, or ask for fewer or smaller pods" if lacking else f"pod {name}: {words}"
    message = f"the gang of {least} is short by {pods}{on}, so none starts: {why}"
    return Hindrance(Reason.GANG_UNSCHEDULABLE, message)
