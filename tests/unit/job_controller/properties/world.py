"""Jobs, their pods, their surroundings and the controller, and what is true whenever the controller rests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random

from tests.unit.job_controller.properties.controller import (
    BURST_GRACE_SECONDS,
    DATA_SET,
    Controller,
    Surroundings,
)
from tests.unit.job_controller.properties.kubelet import (
    ENDED,
    Kubelet,
    epoch_of,
    index_of,
    is_going,
    phase_of,
    role_of,
)
from tests.unit.job_controller.properties.laws import FINAL, Laws, condition, must_go, replicas, size
from tests.unit.job_controller.properties.server import KEY, ModelClock, Server

from job_controller.core import names
from job_controller.core.model import Observed, Options
from job_controller.core.plan import plan
from job_controller.core.program_end import with_program_ends
from job_controller.core.status import has_succeeded
from job_controller.core.verdict import GoOn, Hold, Verdict, decide_verdict, start_times
from job_controller.timing import EXPIRED_PODS_GRACE_SECONDS, FIRST_STATUS_GRACE_SECONDS
from paddlewheel.contracts.crds.paddlejob import ROLES
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.contracts.wire import to_json
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import Object


def make_sample_set(phase: str, message: str = "", reason: str = "") -> Object:
    """A data set of two partitions as the API server has it."""
    metadata = {"namespace": DATA_SET.namespace, "name": DATA_SET.name}
    status = {"phase": phase, "message": message, "reason": reason}
    return {"metadata": metadata, "spec": {"partitions": 2}, "status": status}


READY = make_sample_set("Ready")
_PASSES = 100
"""More than any history needs until the controller rests."""
_SHARE = 0.7
"""The share of steps that the controller makes while the nodes could act as well."""
_NODES_INTERVAL_SECONDS = 10.0
_PASSING_GRACE_SECONDS = 600.0
_VERDICT_TIMEOUT_SECONDS = 70.0
"""Longer than a verdict waits for nodes."""
_PASSING = {"PodsPending", "PodsStarting"}
"""A job has these reasons for a moment only."""
_WAITS = {"Restarting", "FormerJobEnding", "PodStuckTerminating"}
"""Reasons why pods are not made yet."""
_DAYS = (86_400.0, 86_400_000.0)


class World:
    """Without events nothing happens but what the controller does."""

    def __init__(self) -> None:
        self.clock = ModelClock()
        self.laws = Laws()
        self.server = self.laws.server = Server(self.clock, self.laws.look)
        self.kubelet = self.laws.kubelet = Kubelet(self.server, self.clock)
        self.around = Surroundings()
        self.options = Options()
        self.controller: Controller | None = None
        self.late: list[Controller] = []
        """Processes that were killed during a call."""

    @property
    def job(self) -> Object | None:
        return self.server.objects[names.JOB].get(KEY)

    @property
    def jobs(self) -> dict[Key, Object]:
        return dict(self.server.objects[names.JOB])

    @property
    def status(self) -> Object:
        return self.status_of(KEY)

    def status_of(self, key: Key) -> Object:
        return self.server.objects[names.JOB].get(key, {}).get("status") or {}

    @property
    def service(self) -> Controller:
        """The controller, which runs."""
        assert self.controller is not None
        return self.controller

    def start(self) -> None:
        """A new process takes the place of the one before."""
        self.controller = Controller(self.server, self.clock, self.around, self.options, self.kubelet)

    def restart(self, *, late: bool) -> None:
        """The process is killed. Its last call may arrive when the next one has already listed everything."""
        former = self.service
        self.start()
        if former.is_working:
            self.late.append(former)
        if late:
            self.call_late()

    def call_late(self) -> None:
        """The API server gets to the last call of a process that was killed."""
        if self.late:
            former = self.late.pop()
            with self.laws.acting(former, is_late=True):
                former.end_call()

    def step(self, chance: int = 0) -> None:
        """One call of the controller's."""
        self._step(self.service, chance)

    def _step(self, controller: Controller, chance: int) -> None:
        with self.laws.acting(controller):
            controller.step(chance)

    def finish(self) -> None:
        """The passes under way to their ends, or a whole one."""
        self.step()
        while self.service.is_working:
            self.step()

    def settle(self) -> None:
        """Only the controller acts, until it has nothing to do. Then a further pass must change nothing."""
        for _ in range(_PASSES):
            self.service.deliver_all()
            if self.service.is_due:
                self.finish()
            elif (wait := self.service.woken_in) is not None:
                self.clock.advance(wait)
            else:
                return self._check_rest()
        raise AssertionError("the controller never comes to rest")

    def live_on(self, seconds: float) -> None:
        """Time passes, and the controller works whenever it has asked to."""
        end = self.clock.elapsed + seconds
        self.settle()
        while (due := self.service.due_in) is not None and self.clock.elapsed + due <= end:
            self.clock.advance(due)
            self.settle()
        self.clock.advance(max(0.0, end - self.clock.elapsed))
        self.settle()

    def go_well(self, rounds: int) -> None:
        """Pods end, get nodes and run, and the controller waits for what it waits for."""
        for _ in range(rounds):
            self.settle()
            if not self.kubelet.round():
                self._wait()

    def set_bus(self, up: bool) -> None:
        """The facts of the time without a bus arrive when it is back."""
        self.around.bus_up = up
        self.service.retry()
        if up:
            self.service.report_data_set()

    def set_data_set(self, sample_set: Object | None, *, readable: bool) -> None:
        """The bus reports the change."""
        self.around.sample_set, self.around.readable = sample_set, readable
        self.set_bus(self.around.bus_up)

    def heal(self) -> None:
        """All goes well from now on. Then the job runs or has ended, unless its user does not want it to."""
        self.around.refused, self.server.quota = set(), None
        self.kubelet.slots, self.kubelet.dead = {}, {}
        self.set_bus(True)
        self.set_data_set(READY, readable=True)
        for _ in range(_PASSES):
            self.settle()
            if not self.kubelet.round() and not self._wait():
                break
        for key, job in self.jobs.items():
            assert self._is_well_off(key), f"the job does not go on: {self.status_of(key)}"
            assert "deletionTimestamp" not in job["metadata"], "a deleted job stays"
        self._check_facts()

    def come_to_rest(self, seconds: float = 1200.0, chance: Random | None = None) -> None:
        """The nodes and the controller do all that they can: then every job has a reason to wait.

        Args:
            chance: decides when the nodes act; without it, when the controller has nothing to do.
        """
        end = self.clock.elapsed + seconds
        while self.clock.elapsed < end:
            while self._act(chance):
                pass
            due = self.service.due_in
            self.clock.advance(
                _NODES_INTERVAL_SECONDS if due is None else min(_NODES_INTERVAL_SECONDS, max(due, 0.001))
            )
        self.settle()
        for key in self.jobs if seconds >= _PASSING_GRACE_SECONDS else ():
            assert self.status_of(key).get("reason") not in _PASSING, f"for ever: {self.status_of(key)}"

    def _act(self, chance: Random | None) -> bool:
        """The controller works, or the nodes do. False when neither has anything to do."""
        self.service.deliver_all()
        if self.service.is_due and (chance is None or chance.random() < _SHARE):
            self.step(chance.randrange(2) if chance else 0)
            return True
        return self.kubelet.round() or self.service.is_due

    def _check_facts(self) -> None:
        """The bus holds each fact with the message that was recorded, unless a user's patience was over."""
        published = {id_: to_json(data).decode() for id_, data in self.around.published.items()}
        for uid, history in self.laws.histories.items():
            if uid in self.around.given_up:
                assert history.is_deleted_by_user, "a job that expired took facts along"
                continue
            told = {id_: published.get(id_) for id_ in history.payloads}
            assert told == history.payloads, "a fact is lost, or has another's content"

    def _wait(self) -> bool:
        """Time passes until the controller's next pass. False when that changed nothing."""
        before, end = self.server.version, self.clock.elapsed + _VERDICT_TIMEOUT_SECONDS
        due = self.service.due_in
        if due is None or self._is_well:
            return False
        while due is not None and self.server.version == before and self.clock.elapsed < end:
            self.clock.advance(max(due, 0.001))
            self.settle()
            due = self.service.due_in
        return self.server.version > before or any(
            self.status_of(key).get("reason") == "Restarting" for key in self.jobs
        )

    @property
    def _is_well(self) -> bool:
        return all(map(self._is_well_off, self.jobs))

    def _is_well_off(self, key: Key) -> bool:
        status = self.status_of(key)
        has_begun = status.get("phase") in {"Running", *FINAL}
        return has_begun or status.get("reason") in {"Suspended", "ScaledToZero"}

    def _is_new(self, job: Object) -> bool:
        """Its first status may wait."""
        created = parse_stamp(job["metadata"]["creationTimestamp"])
        return created is not None and self.clock.now() < created + timedelta(
            seconds=FIRST_STATUS_GRACE_SECONDS
        )

    def _is_small(self, key: Key) -> bool:
        world = self.status_of(key).get("world") or {}
        return bool(world.get("workers", 0) < world.get("of", 0))

    @property
    def _is_free(self) -> bool:
        """The API server refuses nothing."""
        return not self.around.refused and self.around.readable and self.server.quota is None

    def _check_rest(self) -> None:
        before = self.server.version
        with self.laws.acting(self.service):
            self.service.look_at_all()
        self.service.deliver_all()
        # A job that looks for room, or tries again under a quota, looks at the other job from time to time.
        looks_around = len(self.jobs) > 1 and any(self._is_small(key) for key in self.jobs)
        if self.server.version != before and (self.server.quota is not None or looks_around):
            return
        assert self.server.version == before, "something was left undone, and nothing wakes the job"
        for key, job in self.jobs.items():
            status = self.status_of(key)
            if not status:
                assert self._is_new(job), "a job without a status"
                continue
            self._check_reason(job, status)
            self._check_patience(key)
            if not self._is_free or status["phase"] == "Terminating":
                continue
            if self._is_held(job):
                said = condition(status, "Running")["reason"]
                assert said == "WaitingForNode", f"{said} while a verdict waits for a node"
            else:
                self._check_pods(job, self.server.children(names.POD, uid_of(job)))

    def _check_reason(self, job: Object, status: Object) -> None:
        """The status has the reason for each wait, and the reason is true."""
        phase, reason = status["phase"], status["reason"]
        assert reason, f"no reason in phase {phase}"
        if phase in {*FINAL, "Terminating"}:
            return
        assert phase == "Running" or reason != "AllPodsRunning", "a job that does not run says that it does"
        if reason in {"PodsPending", "PodsStarting"} and self._is_free:
            pods = self.server.children(names.POD, uid_of(job))
            awaited = [p for p in pods if is_going(p) or phase_of(p) not in ENDED]
            assert awaited, "the job waits for pods, of which there are none"

    def _is_held(self, job: Object) -> bool:
        """It is not known yet whether a node was lost; a suspension does not wait for that."""
        seen = self.service.jobs[key_of(job)].seen
        is_held = seen is not None and not seen.job.status.final and isinstance(self._verdict(seen), Hold)
        assert not (is_held and job["spec"].get("suspend")), "a suspended job waits for the verdict"
        return is_held

    def _verdict(self, seen: Observed) -> Verdict:
        now = self.clock.now()
        return GoOn() if has_succeeded(seen) else decide_verdict(with_program_ends(seen, now), now)

    def _check_patience(self, key: Key) -> None:
        """Nothing that time alone changes is missed: the pass is asked for before it is needed."""
        passes = self.service.jobs[key]
        seen = passes.seen
        if seen is None or not self._is_free or (len(self.jobs) > 1 and self._is_small(key)):
            return
        due = passes.due_in
        for wait in _DAYS if due is None else [max(0.0, due - BURST_GRACE_SECONDS)]:
            todo = plan(seen, self.options, self.clock.now() + timedelta(seconds=wait))
            assert not todo.actions, f"{todo.actions} would be due in {wait} s, unasked"
            assert todo.status in (None, seen.status), f"the status would change in {wait} s, unasked"

    def _check_pods(self, job: Object, pods: list[Object]) -> None:
        status: Object = job["status"]
        if status["phase"] in FINAL:
            kept = [p for p in pods if not is_going(p)]
            is_over = any(must_go(job, has_ended=phase_of(p) in ENDED) for p in kept)
            assert not is_over or self._goes_with_its_job(job), "cleanPodPolicy takes this pod away"
            return
        if condition(status, "Accepted").get("status") != "True":
            return
        live = [p for p in pods if not is_going(p)]
        assert all(epoch_of(p) == status.get("epoch", 0) for p in live), "a pod of a former epoch is left"
        assert all(index_of(p) < replicas(job, role_of(p)) for p in live), "a pod that nobody wants"
        self._check_suspension(job, live)
        self._check_missing(job, pods)

    def _goes_with_its_job(self, job: Object) -> bool:
        """The job has expired, and its pods go with it, unless its facts stay unpublished for too long."""
        ttl, ended = job["spec"].get("ttlSecondsAfterFinished"), parse_stamp(job["status"]["completionTime"])
        if ttl is None or ended is None:
            return False
        left = (ended - self.clock.now()).total_seconds() + ttl + EXPIRED_PODS_GRACE_SECONDS
        if left <= 0:
            return False
        due = self.service.jobs[key_of(job)].due_in
        assert due is not None, "nothing looks at an expired job"
        assert due <= left, "an expired job is looked at too late"
        return True

    def _check_suspension(self, job: Object, live: list[Object]) -> None:
        is_suspended = bool(job["spec"].get("suspend"))
        assert (condition(job["status"], "Suspended").get("status") == "True") == is_suspended
        if is_suspended:
            assert job["status"]["reason"] == "Suspended"
            assert not live, "a suspended job holds pods"

    def _delayed(self, job: Object) -> set[str]:
        """Pods that wait because pods of their places were lost several times, or all of a new epoch."""
        seen = self.service.jobs[key_of(job)].seen
        assert seen is not None
        return {seen.job.pod_name(place) for place in start_times(seen, self.clock.now())}

    def _repeats_a_read(self, key: Key) -> bool:
        """The API server did not answer a read, which it may do by now. It is repeated after a while."""
        passes = self.service.jobs[key]
        if passes.seen is None or passes.seen.trouble is None:
            return False
        due = passes.due_in
        assert due is not None, "nothing repeats the read"
        assert passes.seen.retry_after is not None
        assert due <= passes.seen.retry_after, "the read is repeated too late"
        return True

    def _check_missing(self, job: Object, pods: list[Object]) -> None:
        """Every wanted pod exists, unless the status has a reason against it."""
        status: Object = job["status"]
        is_gated = condition(status, "Admitted")["status"] != "True"
        if is_gated or status["reason"] in _WAITS or any(map(is_going, pods)):
            return
        if self._repeats_a_read(key_of(job)):
            assert condition(status, "Blocked")["status"] == "True", "a job that cannot read says nothing"
            return
        later = self._delayed(job)
        assert not later or self.service.due_in is not None, "nobody looks when pods may be made again"
        there = {p["metadata"]["name"] for p in pods}
        for role in ROLES:
            done = (status.get(role) or {}).get("succeededIndexes", [])
            name = job["metadata"]["name"]
            wanted = {f"{name}-{role}-{i}" for i in range(size(job, role)) if i not in done}
            assert wanted <= there | later, f"pods are missing: {wanted - there - later}"


Pick = Callable[[Object], bool]
