"""The laws of every single write, whatever happened before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.unit.job_controller.properties.kubelet import (
    annotation,
    epoch_of,
    index_of,
    is_alive,
    is_going,
    job_of,
    phase_of,
    role_of,
)

from job_controller.core import names
from job_controller.core.model import Observed
from job_controller.core.pods import PodState
from paddlewheel.kube.objects import controller_uid, uid_of
from paddlewheel.kube.ports import Object

if TYPE_CHECKING:
    from tests.unit.job_controller.properties.controller import Controller
    from tests.unit.job_controller.properties.kubelet import Kubelet
    from tests.unit.job_controller.properties.server import Server

PROGRAM = {"PodFailed", "OOMKilled"}
DISRUPTIONS = {"Evicted", "Preempted", "NodeLost", "MountLost", "RejectedByNode", "PodDeleted"}
FAILURES = PROGRAM | DISRUPTIONS | {"Ignored"}
DISRUPTION_LIMIT = 10
FINAL = {"Completed": "JobSucceeded", "Failed": "JobFailed"}
ENDS = {"JobSucceeded", "JobFailed"}
IN_A_ROW = {"JobRestarted", "JobSuspended", "JobResumed", "JobStuck"}
"""Facts of which no attempt may be left out."""
ALL_DELETED_AT = {
    "": {"Completed"},
    "Always": {"Completed", "Failed"},
    "OnCompletion": {"Completed"},
    "OnFailure": {"Failed"},
}
"""The contract's table; with any other word nothing is deleted."""
CHANGES = {
    "Suspended": "suspend",
    "TemplateChanged": "template",
    "RestartRequested": "restart",
    "Scaled": "scale",
}


@dataclass
class History:
    """The history of one job."""

    uid: str = ""
    facts: list[tuple[str, int]] = field(default_factory=list)
    payloads: dict[str, str] = field(default_factory=dict)
    """The message of each fact by its id, as it was first recorded."""
    is_deleted_by_user: bool = False
    lost: set[str] = field(default_factory=set)
    """Uids of pods that failed, or that another client deleted."""
    made: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """The uid of the last pod of each role, rank and epoch."""
    released: set[str] = field(default_factory=set)
    """Uids of pods that the controller deleted while their epoch went on, as it may."""
    asked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How often the user has changed what."""


class Laws:
    """Raises AssertionError for a write that must not be."""

    def __init__(self) -> None:
        self.controller: Controller | None = None
        """The one whose call is under way."""
        self.is_late = False
        self.histories: dict[str, History] = defaultdict(History)
        self.server: Server
        self.kubelet: Kubelet
        self.dead_once: set[str] = set()
        """Nodes that have died at some time."""

    @contextmanager
    def acting(self, controller: Controller, *, is_late: bool = False) -> Iterator[None]:
        """The controller does every write meanwhile; late ones after it was killed."""
        self.controller, self.is_late = controller, is_late
        try:
            yield
        finally:
            self.controller, self.is_late = None, False

    @property
    def by_controller(self) -> bool:
        return self.controller is not None

    @property
    def seen(self) -> Observed | None:
        """The observation of the controller's present pass."""
        return self.controller.at_work.seen if self.controller else None

    def look(self, kind: str, old: Object | None, new: Object | None) -> None:
        if kind == names.POD:
            self._pod(old, new)
        if kind == names.JOB and new is not None and self.by_controller:
            self._status((old or {}).get("status") or {}, new.get("status") or {}, new)

    def _pod(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None
        history = self.histories[controller_uid(pod)[0]]
        if old is None:
            return self._created(pod)
        was_given_up = new is None or is_going(new)
        if not self.by_controller and (was_given_up or phase_of(pod) == "Failed") and not is_going(old):
            history.lost.add(uid_of(pod))
        if self.by_controller and was_given_up and not is_going(old):
            self._deleted(old)
            self._released(history, old)
        if new is not None and phase_of(new) == "Running" and phase_of(old) == "Pending":
            self._began(new)
        return None

    def _created(self, pod: Object) -> None:
        job = self.server.objects[names.JOB].get(job_of(pod))
        owner = controller_uid(pod)[0]
        if job is None or uid_of(job) != owner:
            return
        status = job.get("status") or {}
        if self.is_late and status.get("epoch", 0) > epoch_of(pod):
            # The API server did not get to the call before the epoch was over. The next pass removes the pod.
            return
        others = [p for p in self.server.children(names.POD, owner) if uid_of(p) != uid_of(pod)]
        assert status.get("epoch", 0) == epoch_of(pod), "a pod of an epoch that is not recorded"
        former = [p for p in others if epoch_of(p) != epoch_of(pod)]
        assert all(_is_left_behind(p, job) for p in former), "a pod beside those of another epoch"
        assert status.get("phase") not in {*FINAL, "Terminating"}, "a pod of a job that has ended"
        done = (status.get(role_of(pod)) or {}).get("succeededIndexes", [])
        assert index_of(pod) not in done, "what has succeeded is run again"
        self._one_world([*others, pod])
        self._once(self.histories[owner], pod)

    def _once(self, history: History, pod: Object) -> None:
        """Each rank has one pod in an epoch, unless another client removed it or the controller may."""
        place = (role_of(pod), index_of(pod), epoch_of(pod))
        before = history.made.get(place)
        is_gone = before is None or before in history.lost | history.released
        assert is_gone, f"a second pod for rank and epoch {place}"
        history.made[place] = uid_of(pod)

    def _released(self, history: History, pod: Object) -> None:
        """A failed pod that is replaced by itself, and one that is not wanted or that only looks for room."""
        seen = self.seen
        if seen is None or seen.status.epoch != epoch_of(pod):
            return
        is_beyond = index_of(pod) >= size(seen.obj, role_of(pod))
        if is_beyond or uid_of(pod) in seen.status.replacing:
            history.released.add(uid_of(pod))

    def _one_world(self, pods: list[Object]) -> None:
        """Pods that live at the same time are of one template and one request of a restart."""
        live = [p for p in pods if is_alive(p)]
        for role in {role_of(p) for p in live}:
            made_of = {annotation(p, names.ANNOTATION_TEMPLATE) for p in live if role_of(p) == role}
            assert len(made_of) <= 1, "a mixed world"

    def _deleted(self, pod: Object) -> None:
        """The controller has deleted a pod, by what it has seen of it."""
        seen = self.seen
        if seen is None or seen.job.uid != controller_uid(pod)[0] or seen.job.deleted_at is not None:
            return
        job, status = seen.obj, seen.obj.get("status") or {}
        if status.get("phase") in FINAL:
            known = next(p for p in (*seen.pods, *seen.old_pods) if p.uid == uid_of(pod))
            has_ended = known.state in {PodState.FAILED, PodState.SUCCEEDED}
            assert must_go(job, has_ended=has_ended), "cleanPodPolicy keeps this pod"
        elif phase_of(pod) == "Failed" and epoch_of(pod) == status.get("epoch", 0):
            is_wanted = index_of(pod) < replicas(job, role_of(pod))
            is_counted = uid_of(pod) in status.get("replacing", [])
            assert is_counted or not is_wanted, "a failure is removed before it is counted"

    def _began(self, pod: Object) -> None:
        """Its containers have read their environment."""
        config = self.server.objects[names.CONFIG_MAP].get(job_of(pod))
        if config is None or not pod["spec"]["containers"][0].get("envFrom"):
            return
        assert controller_uid(config) == controller_uid(pod), "the addresses of another job"
        told = int((config.get("data") or {}).get("PADDLEWHEEL_EPOCH", "0"))
        assert told == epoch_of(pod), "a pod has read the addresses of another epoch"

    def _status(self, old: Mapping[str, Any], new: Mapping[str, Any], job: Object) -> None:
        if new == old:
            return
        history = self.histories[uid_of(job)]
        history.uid = uid_of(job)
        _ends_once(old, new)
        _counts_only_up(old, new)
        _is_one_story(new)
        assert new.get("progress") == old.get("progress"), "progress is written by others"
        self._facts(history, old, new)
        self._budgets(history, old, new, job)
        self._nodes(old, new)

    def _nodes(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """No node that lives is lost, and the crash of a node is no failure of the program, whatever the
        clocks of nodes say."""
        if new.get("lastRestart") != old.get("lastRestart") and "Lease" in new["lastRestart"]["message"]:
            assert any(node in new["lastRestart"]["message"] for node in self.dead_once), new["lastRestart"]
        before, after = old.get("restarts", {}), new.get("restarts", {})
        is_blamed = after.get("PodFailed", 0) > before.get("PodFailed", 0)
        if is_blamed and new.get("epoch", 0) > old.get("epoch", 0) and self.seen is not None:
            assert not self._crashed_before(self.seen), "a program is blamed for the crash of a node"

    def _crashed_before(self, seen: Observed) -> list[str]:
        """Nodes of ranks that were dead when the first rank failed, and have been since."""
        failed = [pod for pod in seen.known_pods if pod.uid in self.kubelet.failed_at and pod.failure]
        first = min((self.kubelet.failed_at[pod.uid] for pod in failed), default=0.0)
        reported = {pod.node for pod in failed}
        ranks = [p for p in seen.pods if p.state is PodState.RUNNING and seen.job.trains(p.id)]
        dead = {node for node, since in self.kubelet.dead.items() if since <= first}
        return [pod.node for pod in ranks if pod.node in dead - reported and not pod.terminating]

    def _facts(self, history: History, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        for a in new["announcements"]:
            id_ = f"{history.uid}/{a['fact']}/{a['attempt']}"
            assert history.payloads.setdefault(id_, a["payload"]) == a["payload"], f"{id_} has changed"
        assert _is_sorted([a["at"] for a in new["announcements"]]), "the order is not that of the times"
        before = {(a["fact"], a["attempt"]) for a in old.get("announcements", ())}
        for fact in [(a["fact"], a["attempt"]) for a in new["announcements"]]:
            if fact in before:
                continue
            _follows(history.facts, fact)
            history.facts.append(fact)
        said = {name for name, _ in history.facts}
        is_refused = condition(new, "Accepted").get("status") == "False"
        assert not said or "JobAccepted" in said or is_refused, f"{said} without JobAccepted"
        for phase, fact_name in FINAL.items():
            assert new["phase"] != phase or fact_name in said, f"{phase} without {fact_name}"

    def _budgets(self, history: History, old: Mapping[str, Any], new: Mapping[str, Any], job: Object) -> None:
        before, after = old.get("restarts", {}), new.get("restarts", {})
        more = [cause for cause, count in after.items() if count > before.get(cause, 0)]
        assert sum(after.values()) - sum(before.values()) <= 1, "two restarts at once"
        # A pod that has not begun is replaced by itself, as often as it is lost.
        is_alone = new.get("epoch", 0) == old.get("epoch", 0)
        for cause in more:
            _check_limit(cause, old.get("budgets", {}), new.get("budgets", {}), job, is_alone=is_alone)
        failures = sum(count for cause, count in after.items() if cause in FAILURES)
        assert failures <= len(history.lost), f"{failures} restarts after {len(history.lost)} losses"
        for cause, what in CHANGES.items():
            assert after.get(cause, 0) <= history.asked[what], f"more restarts by {cause} than changes"


def _is_sorted(times: list[str]) -> bool:
    return times == sorted(times)


def must_go(job: Object, *, has_ended: bool) -> bool:
    """The clean-up policy, or the end of the job, takes such a pod away."""
    policy, status = job["spec"].get("cleanPodPolicy", ""), job["status"]
    if status["phase"] in ALL_DELETED_AT.get(policy, set()):
        return True
    return not has_ended and not _keeps_all(job)


def _keeps_all(job: Object) -> bool:
    is_overdue = condition(job["status"], "Failed").get("reason") == "DeadlineExceeded"
    return job["spec"].get("cleanPodPolicy", "") not in ALL_DELETED_AT and not is_overdue


def replicas(job: Object, role: str) -> int:
    return int((job["spec"].get(role) or {}).get("replicas", 0))


def size(job: Object, role: str) -> int:
    """How many pods of the role train: fewer workers than wanted while there is no room."""
    world, wanted = job.get("status", {}).get("world", {}), replicas(job, role)
    is_small = role == "worker" and world.get("of") == wanted and world["workers"] < wanted
    return int(world["workers"]) if is_small else wanted


def _is_left_behind(pod: Object, job: Object) -> bool:
    """A deleted pod of a former epoch, beyond the workers that train now: its node may be lost."""
    return is_going(pod) and index_of(pod) >= size(job, role_of(pod))


def condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """{} when there is none."""
    return next((c for c in status.get("conditions", ()) if c["type"] == type_), {})


def _ends_once(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    was, is_ = old.get("phase", ""), new["phase"]
    if was == "Terminating":
        assert is_ == was, "a deleted job has come back"
    if was in FINAL:
        assert is_ in {was, "Terminating"}, f"{was} has become {is_}"
    if old.get("completionTime"):
        for field_ in ("startTime", "completionTime", "results", "epoch", "restarts"):
            assert old.get(field_) == new.get(field_), f"{field_} changed after the end"


def _counts_only_up(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    for name in ("epoch", "suspensions"):
        assert new.get(name, 0) >= old.get(name, 0), f"{name} has gone down"
    for cause, count in old.get("restarts", {}).items():
        assert new.get("restarts", {}).get(cause, 0) >= count, f"restarts by {cause} have gone down"
    stuck = new.get("stuckOn", [])
    assert stuck[: len(old.get("stuckOn", []))] == old.get("stuckOn", []), "stuckOn was rewritten"
    assert len(set(stuck)) == len(stuck), "a cause is said twice"
    assert not old.get("startTime") or new.get("startTime") == old["startTime"], "startTime has changed"


def _is_one_story(status: Mapping[str, Any]) -> None:
    """Phase, conditions and counts say the same."""
    phase, types = status["phase"], {"Running": "Running", "Completed": "Complete", "Failed": "Failed"}
    if phase == "Terminating":
        return
    for own, type_ in types.items():
        is_true = condition(status, type_).get("status") == "True"
        assert is_true == (phase == own), f"{type_} is {is_true} in phase {phase}"
    assert bool(status.get("completionTime")) == (phase in FINAL), f"completionTime in phase {phase}"
    for role in ("ps", "worker", "heter"):
        counted = status.get(role)
        if counted:
            names_ = [ref["name"] for ref in counted["refs"]]
            assert len(names_) == len(set(names_)), "a pod is listed twice"
    running, _, wanted = status.get("ready", "0/0").partition("/")
    assert int(running) <= int(wanted), f"{running} of {wanted} pods are ready"


def _follows(said: list[tuple[str, int]], fact: tuple[str, int]) -> None:
    """The fact is new, and contradicts none of those before."""
    name, attempt = fact
    before = [other for other_name, other in said if other_name == name]
    told = {other for other, _ in said}
    assert fact not in said, f"{fact} is recorded twice"
    assert all(attempt > other for other in before), f"{fact} after {before}"
    assert name not in IN_A_ROW or attempt == len(before), f"{fact} after {before}"
    assert "JobDeleted" not in told, f"{fact} after JobDeleted"
    assert not told & ENDS or name in {"JobDeleted", "ModelPublished"}, f"{fact} after the end"
    if name not in {"JobAccepted", "JobDeleted"}:
        assert "JobAccepted" in told, f"{fact} before JobAccepted"
    if name == "JobRunning":
        assert ("JobStarting", attempt) in said, f"{fact} before JobStarting"
    if name == "JobResumed":
        assert ("JobSuspended", attempt) in said, f"{fact} before JobSuspended"
    if name == "JobSuspended" and attempt:
        assert ("JobResumed", attempt - 1) in said, f"{fact} before JobResumed"


def _check_limit(
    cause: str, before: Mapping[str, int], after: Mapping[str, int], job: Object, *, is_alone: bool
) -> None:
    """A failure counts against one limit, and stays within it."""
    spec = job["spec"]
    policy = spec.get("failurePolicy") or {}
    raised = [name for name, count in after.items() if count != before.get(name, 0)]
    is_counted = cause in PROGRAM or (cause in DISRUPTIONS and not is_alone)
    # A long run sets the count of disruptions back, so it may be 1 again.
    begins_again = cause in DISRUPTIONS and not raised and after.get("disruptions") == 1
    is_right = len(raised) <= 1 and (bool(raised) or begins_again or not is_counted)
    assert is_right, f"{cause} counts against {raised}"
    for name in raised:
        limits = {"backoffLimit": spec.get("backoffLimit") or 0, "disruptions": DISRUPTION_LIMIT}
        rules = {f"rule-{i}": rule.get("limit") for i, rule in enumerate(policy.get("rules", []), start=1)}
        assert after[name] <= (limits | rules)[name], f"restarts beyond the limit: {after}"
