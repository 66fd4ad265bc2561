"""The watches of this service, and the job that each change wakes. Nothing is decided here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from job_controller.core import names
from job_controller.core.environment import parse_port
from job_controller.core.model import AUTO
from job_controller.core.parse_pod import pod_role, pod_state
from job_controller.core.pods import PodState
from job_controller.core.urgency import all_run, may_change_phase
from job_controller.timing import (
    COUNTS_INTERVAL_SECONDS,
    LONGEST_COUNTS_INTERVAL_SECONDS,
    POD_CHANGE_BATCH_INTERVAL_SECONDS,
)
from paddlewheel.bus.ports import Delivery
from paddlewheel.contracts.crds.paddlejob import GangKind
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import deleted_at, status_of
from paddlewheel.contracts.subjects import event_filter
from paddlewheel.core.clock import Clock
from paddlewheel.kube.informer import Informer
from paddlewheel.kube.objects import controller_id, controller_of, controller_uid, id_of, key_of, uid_of
from paddlewheel.kube.ports import (
    CONFIG_MAPS,
    PADDLE_JOBS,
    POD_GROUPS,
    PODS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    WORKLOADS,
    Change,
    Object,
    Resource,
    Watches,
)
from paddlewheel.operator.watch import Watch

JOB = PADDLE_JOBS.kind
BY_OWNER = "owner"
BY_SAMPLE_SET = "sample-set"
BY_HOST_PORT = "host-port"
BY_UID = "uid"
BY_ROOM = "room"
TAKEN = "taken"
WAITING, SMALL, RESTARTING = "waiting", "small", "restarting"
"""Values of `BY_ROOM`: pods without a node, jobs with fewer workers than they want, jobs between epochs."""

DATASET_FACTS = event_filter("datasets", "sampleset")

_CHILDREN = {PODS: names.LABEL_NAME, SERVICES: "", CONFIG_MAPS: names.LABEL_NAME}
"""Watched kinds, by label. The Services of the original operator have no label."""
GANGS: Mapping[str, tuple[str, Resource, str]] = {
    GangKind.NATIVE: (names.POD_GROUP, POD_GROUPS, names.LABEL_JOB),
    GangKind.VOLCANO: (names.VOLCANO_POD_GROUP, VOLCANO_POD_GROUPS, ""),
}
"""Each kind of gang with its PodGroups, and by which label they are watched: one that users have written for
Volcano has none."""
_ADMITTERS = (*names.POD_GROUPS, names.WORKLOAD)

Wake = Callable[[Key, float], None]
"""Reconcile the job after a delay in seconds."""


def make_watch(watches: Watches, namespace: str, clock: Clock, gang_scheduling: str) -> Watch:
    """Informers of jobs and of what they own. `namespace` "" means all.

    Args:
        gang_scheduling: Auto, None, Volcano or Native: whose PodGroups are made.
    """
    jobs = Informer(
        watches,
        PADDLE_JOBS,
        namespace,
        clock=clock,
        indexes={
            BY_SAMPLE_SET: _by_sample_set,
            BY_HOST_PORT: _host_port_of,
            BY_UID: _uid_of,
            BY_ROOM: _room_of_job,
        },
    )
    children = {
        resource.kind: Informer(
            watches,
            resource,
            namespace,
            clock=clock,
            label_selector=selector,
            indexes={BY_OWNER: controller_id, BY_ROOM: _room_of_pod},
        )
        for resource, selector in _CHILDREN.items()
    }
    wanted = [gang for name, gang in GANGS.items() if gang_scheduling in (AUTO, name)]
    groups = {
        kind: Informer(watches, resource, namespace, clock=clock, label_selector=selector, optional=True)
        for kind, resource, selector in wanted
    }
    workloads = Informer(
        watches, WORKLOADS, namespace, clock=clock, label_selector=names.LABEL_JOB, optional=True
    )
    return Watch({JOB: jobs, **children, **groups, names.WORKLOAD: workloads})


class Wakes:
    """Wakes the jobs that a change concerns."""

    def __init__(self, watch: Watch, wake: Wake, clock: Clock) -> None:
        self._watch = watch
        self._wake = wake
        self._tally = PodTally()
        self._pace = Pace(clock)

    def changed(self, kind: str, change: Change) -> None:
        """A watched object was added, modified or deleted."""
        if change.type == "DELETED":
            self._pace.forget(uid_of(change.obj))
        if kind == names.POD and self._tally.is_first(change):
            self._pace.forget("".join(controller_uid(change.obj)))
        is_urgent = kind == names.POD and self._tally.take_in(change)
        if self._is_known(kind, change):
            return
        if kind == JOB:
            self._wake(key_of(change.obj), 0.0)
        elif job := owner_of(change.obj):
            self._wake(job, self._patience(job, kind, change, is_urgent))
        elif kind in names.POD_GROUPS and self._watch.of(JOB).get(key_of(change.obj)):
            # Its user has written it.
            self._wake(key_of(change.obj), 0.0)

    def installed(self, kind: str, _: bool) -> None:
        """A gang scheduler, or Kueue, has come or gone."""
        if kind in _ADMITTERS:
            for job in self._watch.of(JOB).list():
                self._wake(key_of(job), POD_CHANGE_BATCH_INTERVAL_SECONDS)

    def _patience(self, job: Key, kind: str, change: Change, is_urgent: bool) -> float:
        """Seconds that the job's pass may wait."""
        if is_urgent or kind in _ADMITTERS:
            return 0.0
        known = self._watch.of(JOB).get(job)
        is_lost = change.type == "DELETED" or deleted_at(change.obj)
        if kind != names.POD or is_lost or known is None:
            return POD_CHANGE_BATCH_INTERVAL_SECONDS
        return self._pace.delay(uid_of(known))

    def _is_known(self, kind: str, change: Change) -> bool:
        """An own write that its pass has taken into account. The next pass counts new pods, and checks a
        claim of host ports."""
        is_new_pod = kind == names.POD and change.type == "ADDED"
        is_new_claim = kind == JOB and self._waits_for_ports(change.obj)
        return not is_new_pod and not is_new_claim and self._watch.of(kind).is_own(change)

    def _waits_for_ports(self, job: Object) -> bool:
        """It has claimed host ports and has no pods yet."""
        has_pods = self._watch.of(names.POD).count_by_index(BY_OWNER, id_of(job)) > 0
        return claimed_port(job) is not None and not has_pods

    async def sample_set_changed(self, delivery: Delivery) -> None:
        """Wake the jobs that use the data set.

        A crash loses the wake, but the next start reconciles every job.
        """
        ref = getattr(delivery.event.data, "sample_set", None)
        if ref is None:
            return
        for job in self._watch.of(JOB).by_index(BY_SAMPLE_SET, str(Key(ref.namespace, ref.name))):
            self._wake(key_of(job), 0.0)


class _Look(NamedTuple):
    """A pass that takes in counts: when, in monotonic seconds, and the spacing to the one before it."""

    due: float
    spacing: float


class Pace:
    """When the counts of a job are looked at: soon after a change, then ever more rarely until they rest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: dict[str, _Look] = {}

    def delay(self, job_uid: str) -> float:
        """Seconds until the pass that takes in a change of this moment."""
        now = self._clock.monotonic()
        look = self._looks.get(job_uid)
        if look is None or look.due <= now:
            look = self._looks[job_uid] = _next_look(look, now)
        return look.due - now

    def forget(self, job_uid: str) -> None:
        """The job is gone."""
        self._looks.pop(job_uid, None)


def _next_look(last: _Look | None, now: float) -> _Look:
    if last is None or now - last.due > last.spacing:
        return _Look(now + POD_CHANGE_BATCH_INTERVAL_SECONDS, COUNTS_INTERVAL_SECONDS)
    return _Look(
        max(now + POD_CHANGE_BATCH_INTERVAL_SECONDS, last.due + last.spacing),
        min(2 * last.spacing, LONGEST_COUNTS_INTERVAL_SECONDS),
    )


class _Seen(NamedTuple):
    """A pod as it was last seen."""

    role: str
    state: PodState
    has_address: bool


class PodTally:
    """Pods of every job by role and state, updated with each change, in constant time."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._counts: defaultdict[str, Counter[PodState]] = defaultdict(Counter)
        self._addressed: Counter[str] = Counter()

    def take_in(self, change: Change) -> bool:
        """Whether the pod's job has to look at this change at once: its phase may change, or the last pod of
        a role has got its address or has gone, which others wait for."""
        pod, role = change.obj, _role_key(change.obj)
        all_ran = all_run(self.of(role))
        before = self._drop(uid_of(pod))
        if change.type == "DELETED":
            return role not in self._counts
        now = _Seen(role, pod_state(pod), bool(status_of(pod).get("podIP")))
        self._add(uid_of(pod), now)
        is_addressed = now.has_address and not (before and before.has_address)
        if is_addressed and self._addressed[role] == self.of(role).total():
            return True
        runs_no_more = all_ran and before is not None and not all_run(self.of(role))
        return runs_no_more or may_change_phase(now.state, self.of(role))

    def is_first(self, change: Change) -> bool:
        """The role had no pods: a start or a restart, whose first counts are news."""
        return change.type == "ADDED" and not self.of(_role_key(change.obj)).total()

    def __len__(self) -> int:
        return len(self._seen)

    def of(self, role: str) -> Counter[PodState]:
        """Pods of one role of one job."""
        return self._counts.get(role, Counter())

    def _add(self, uid: str, now: _Seen) -> None:
        self._seen[uid] = now
        self._counts[now.role][now.state] += 1
        self._addressed[now.role] += now.has_address

    def _drop(self, uid: str) -> _Seen | None:
        before = self._seen.pop(uid, None)
        if before is None:
            return None
        role = before.role
        self._counts[role][before.state] -= 1
        self._addressed[role] -= before.has_address
        if not self._counts[role].total():
            del self._counts[role], self._addressed[role]
        return before


def _role_key(pod: Object) -> str:
    return f"{''.join(controller_uid(pod))}/{pod_role(pod)}"


def owner_of(obj: Object) -> Key | None:
    """Address of the PaddleJob that controls this object."""
    owner = controller_of(obj)
    if owner is None or owner.get("kind") != JOB:
        return None
    return Key(key_of(obj).namespace, str(owner["name"]))


def sample_set_of(job: Object) -> Key | None:
    """Address of the data set that the job uses."""
    ref = (job.get("spec") or {}).get("sampleSetRef")
    if not ref:
        return None
    return Key(str(ref.get("namespace") or key_of(job).namespace), str(ref.get("name", "")))


def _by_sample_set(job: Object) -> list[str]:
    ref = sample_set_of(job)
    return [] if ref is None else [str(ref)]


def _uid_of(job: Object) -> list[str]:
    return [uid_of(job)]


def _room_of_job(job: Object) -> list[str]:
    status = status_of(job)
    world, phase = status.get("world") or {}, status.get("phase")
    is_small = world.get("workers", 0) < world.get("of", 0) and phase not in names.FINAL_PHASES
    return [*([SMALL] if is_small else []), *([RESTARTING] if phase == names.RESTARTING else [])]


def _room_of_pod(pod: Object) -> list[str]:
    """A pod that the scheduler looks at."""
    spec = pod.get("spec") or {}
    is_held = spec.get("nodeName") or spec.get("schedulingGates") or deleted_at(pod)
    return [WAITING] if not is_held and status_of(pod).get("phase") == "Pending" else []


def _host_port_of(job: Object) -> list[str]:
    return [TAKEN] if claimed_port(job) is not None else []


def claimed_port(job: Object) -> int | None:
    """First of the host ports that the job has claimed."""
    annotations = job["metadata"].get("annotations") or {}
    return parse_port(str(annotations.get(names.ANNOTATION_HOST_PORT, "")))
