"""One job, its pods, its surroundings and the controller, and what is true whenever the controller rests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from tests.unit.job_controller.properties.controller import AT_ONCE, Controller, Surroundings
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

from job_controller.domain import names
from job_controller.domain.model import Options, SampleSet
from job_controller.domain.plan import plan
from paddlewheel.contracts.crds.paddlejob import ROLES
from paddlewheel.contracts.stamps import parse_stamp
from paddlewheel.contracts.wire import to_json
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import Object

READY = SampleSet("Ready", 2)
_PASSES = 60
"""More than any history needs until the controller rests."""
_DAYS = (86_400.0, 86_400_000.0)


class World:
    """Without events nothing happens but what the controller does."""

    def __init__(self) -> None:
        self.clock = ModelClock()
        self.laws = Laws()
        self.server = self.laws.server = Server(self.clock, self.laws.look)
        self.kubelet = Kubelet(self.server, self.clock)
        self.around = Surroundings()
        self.options = Options()
        self.controller: Controller | None = None

    @property
    def job(self) -> Object | None:
        return self.server.objects[names.JOB].get(KEY)

    @property
    def status(self) -> Object:
        return (self.job or {}).get("status") or {}

    @property
    def service(self) -> Controller:
        """The controller, which runs."""
        assert self.controller is not None
        return self.controller

    def start(self) -> None:
        """A new process takes the place of the one before."""
        self.controller = Controller(self.server, self.clock, self.around, self.options)

    def restart(self, *, late: bool) -> None:
        """The process is killed. Its last call may arrive when the next one has already listed everything."""
        former = self.service
        self.start()
        if late and former.is_working:
            self._step(former)

    def step(self) -> None:
        """One call of the controller's."""
        self._step(self.service)

    def _step(self, controller: Controller) -> None:
        self.laws.by_controller = True
        try:
            controller.step()
        finally:
            self.laws.by_controller = False
            self.laws.seen = controller.seen

    def finish(self) -> None:
        """The pass under way to its end, or a whole one."""
        self.step()
        while self.service.is_working:
            self.step()

    def settle(self) -> None:
        """Nobody else acts until the controller has nothing to do: then it is asked whether that is so."""
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

    def heal(self) -> None:
        """In the end all goes well: then the job runs or has ended, unless its user does not want it to."""
        self.around.refused, self.around.bus_up, self.around.readable = set(), True, True
        self.around.sample_set = READY
        self.service.retry()
        for _ in range(_PASSES):
            self.settle()
            if not self.kubelet.round() and not self._wait():
                break
        assert self._is_well, f"the job does not go on: {self.status}"
        assert "deletionTimestamp" not in (self.job or {"metadata": {}})["metadata"], "a deleted job stays"
        self._check_facts()

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
        """Until the controller wants to look again. False when nothing came of it."""
        due, before = self.service.due_in, self.server.version
        if due is None or self._is_well:
            return False
        self.clock.advance(max(due, 0.001))
        self.settle()
        return self.server.version > before or self.status.get("reason") == "Restarting"

    @property
    def _is_well(self) -> bool:
        status = self.status
        is_there = self.job is not None and status.get("phase") not in {"Running", *FINAL}
        return not is_there or status.get("reason") in {"Suspended", "ScaledToZero"}

    @property
    def _is_free(self) -> bool:
        """The API server refuses nothing."""
        return not self.around.refused and self.around.readable

    def _check_rest(self) -> None:
        before = self.server.version
        self.finish()
        self.service.deliver_all()
        assert self.server.version == before, "something was left undone, and nothing wakes the job"
        job = self.job
        if job is None:
            return
        assert self.status, "a job without a status"
        self._check_reason()
        self._check_patience()
        if self._is_free and self.status["phase"] != "Terminating":
            self._check_pods(job, self.server.children(names.POD, uid_of(job)))

    def _check_reason(self) -> None:
        """Whatever the job waits for is said, and is true."""
        phase, reason = self.status["phase"], self.status["reason"]
        assert reason, f"no reason in phase {phase}"
        if phase in {*FINAL, "Terminating"}:
            return
        assert phase == "Running" or reason != "AllPodsRunning", "a job that does not run says that it does"
        if reason in {"PodsPending", "PodsStarting"} and self._is_free:
            awaited = [p for p in self.kubelet.pods if is_going(p) or phase_of(p) not in ENDED]
            assert awaited, "the job waits for pods, of which there are none"

    def _check_patience(self) -> None:
        """Nothing that time alone changes is missed: the pass is asked for before it is needed."""
        seen = self.service.observe()
        if seen is None or not self._is_free:
            return
        due = self.service.due_in
        for wait in _DAYS if due is None else [max(0.0, due - AT_ONCE)]:
            todo = plan(seen, self.options, self.clock.now() + timedelta(seconds=wait))
            assert not todo.actions, f"{todo.actions} would be due in {wait} s, unasked"
            assert todo.status in (None, seen.status), f"the status would change in {wait} s, unasked"

    def _check_pods(self, job: Object, pods: list[Object]) -> None:
        status = self.status
        if status["phase"] in FINAL:
            kept = [p for p in pods if not is_going(p)]
            is_over = any(must_go(job, has_ended=phase_of(p) in ENDED) for p in kept)
            assert not is_over, "cleanPodPolicy takes this pod away"
            return
        if condition(status, "Accepted").get("status") != "True":
            return
        live = [p for p in pods if not is_going(p)]
        assert all(epoch_of(p) == status.get("epoch", 0) for p in live), "a pod of a former epoch is left"
        assert all(index_of(p) < replicas(job, role_of(p)) for p in live), "a pod that nobody wants"
        self._check_suspension(bool(job["spec"].get("suspend")), live)
        self._check_missing(job, pods)

    def _check_suspension(self, is_suspended: bool, live: list[Object]) -> None:
        assert (condition(self.status, "Suspended").get("status") == "True") == is_suspended
        if is_suspended:
            assert self.status["reason"] == "Suspended"
            assert not live, "a suspended job holds pods"

    @property
    def _is_restart_delayed(self) -> bool:
        """The reason may be another one, when a pod that is there is hindered."""
        last: Object = self.status.get("lastRestart") or {}
        since, failures = parse_stamp(last.get("time")), int(last.get("failures", 0))
        is_said = bool(self.status["reason"] == "Restarting")
        if is_said or since is None or failures <= 1:
            return is_said
        delay = timedelta(seconds=min(10 << (failures - 2), 300))
        return since - delay <= self.clock.now() < since + delay

    def _check_missing(self, job: Object, pods: list[Object]) -> None:
        """Unless something that is said is in the way, every wanted pod is there."""
        status = self.status
        is_gated = condition(status, "Admitted")["status"] != "True"
        is_later = self._is_restart_delayed and self.service.due_in is not None
        if is_gated or is_later or any(map(is_going, self.kubelet.pods)):
            return
        there = {p["metadata"]["name"] for p in pods}
        for role in ROLES:
            done = (status.get(role) or {}).get("succeededIndexes", [])
            wanted = {f"demo-{role}-{i}" for i in range(size(job, role)) if i not in done}
            assert wanted <= there, f"pods are missing: {wanted - there}"


Pick = Callable[[Object], bool]
