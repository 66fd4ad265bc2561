"""Random histories of one job against the pure planner, and what must be true of all of them.

A pass of the controller is made of single calls of the API: between any two of them pods, users and other
controllers act, and the process may be killed. Its caches are the real ones and lag behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.unit.job_controller.properties.controller import AT_ONCE, Controller, Surroundings
from tests.unit.job_controller.properties.kubelet import (
    CODES,
    DISRUPTIONS,
    NODES,
    Kubelet,
    epoch_of,
    is_going,
    phase_of,
    role_of,
)
from tests.unit.job_controller.properties.laws import FINAL, Laws, condition, must_go, replicas
from tests.unit.job_controller.properties.server import KEY, KINDS, ModelClock, Server

from job_controller.domain import names
from job_controller.domain.model import Options, SampleSet
from job_controller.domain.plan import plan
from paddlewheel.kube.objects import key_of, uid_of
from paddlewheel.kube.ports import Object
from paddlewheel.operator.domain.plan import Create, Delete, Patch
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_template

settings.register_profile(
    "jobs", max_examples=250, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.register_profile("jobs-long", settings.get_profile("jobs"), max_examples=1_000_000)

HELD = ["example.com/held"]
POLICIES = st.sampled_from(["", "Always", "Never", "OnFailure", "OnCompletion", "OnFailed"])
RULES = [
    [],
    [{"action": "Ignore", "exitCodes": [3]}],
    [{"action": "Fail", "exitCodes": [2]}],
    [{"action": "Restart", "reasons": ["OOMKilled"], "limit": 1}],
    [{"action": "Restart", "reasons": ["PodDeleted", "Evicted"], "limit": 2}],
]
READY = SampleSet("Ready", 2)
SAMPLE_SETS = [
    None,
    READY,
    READY,
    SampleSet("Syncing", 2, "40 %"),
    SampleSet("Failed", 2, "no bucket", "SyncFailed"),
]
REFUSABLE = [
    (Create, names.POD),
    (Create, names.CONFIG_MAP),
    (Create, names.SERVICE_KIND),
    (Delete, names.POD),
    (Patch, names.POD),
]
ROLES = ("ps", "worker")
ROUNDS = st.sampled_from([0, 1, 3, 6, 6])
CHANCES = {
    "ps": 4,
    "elastic": 10,
    "suspend": 8,
    "backoffLimit": 2,
    "activeDeadlineSeconds": 6,
    "ttlSecondsAfterFinished": 6,
    "sampleSetRef": 5,
    "withGloo": 5,
}
"""Of an optional field: one in so many jobs has it."""


@st.composite
def specs(draw: st.DrawFn) -> Object:
    """Specs of small jobs, each with few of the fields that matter."""
    scope = draw(st.sampled_from(["Gang", "Gang", "Pod"]))
    spec: Object = {
        "worker": _role(draw(st.integers(1, 3)), held=draw(st.booleans())),
        "intranet": draw(st.sampled_from(["", "", "Service", "Host"])),
        "cleanPodPolicy": draw(POLICIES),
        "failurePolicy": {"restartScope": scope, "rules": draw(st.sampled_from(RULES))},
    }
    some = {
        "ps": _role(1),
        "elastic": 1,
        "suspend": True,
        "backoffLimit": draw(st.integers(0, 3)),
        "activeDeadlineSeconds": draw(st.sampled_from([5, 60, 600])),
        "ttlSecondsAfterFinished": draw(st.sampled_from([0, 30])),
        "sampleSetRef": {"name": "data", "mountPath": "/data"},
        "withGloo": 1,
    }
    chosen = {name for name, one_in in CHANCES.items() if draw(st.integers(1, one_in)) == one_in}
    return spec | {name: some[name] for name in sorted(chosen)}


def _role(count: int, image: str = "example/train:1", *, held: bool = False) -> Object:
    template = make_template()
    template["spec"]["containers"][0]["image"] = image
    template["metadata"] = {"finalizers": HELD} if held else {}
    return {"replicas": count, "template": template}


class JobMachine(RuleBasedStateMachine):
    """One job, its user, its pods, and the controller."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ModelClock()
        self.laws = Laws()
        self.server = self.laws.server = Server(self.clock, self.laws.look)
        self.kubelet = Kubelet(self.server, self.clock)
        self.around = Surroundings()
        self.options = Options()
        self.restarts = 0

    # The beginning.

    @initialize(spec=specs(), gated=st.booleans(), sample_set=st.sampled_from(SAMPLE_SETS), rounds=ROUNDS)
    def begin(self, spec: Object, gated: bool, sample_set: SampleSet | None, rounds: int) -> None:
        self.options = Options(gate_image="example/gate:1" if gated else "", elastic_server="etcd:2379")
        self.around.sample_set = sample_set
        self.server.create(names.JOB, make_paddle_job(**spec))
        self.start_controller()
        self.all_goes_well(rounds)

    def start_controller(self) -> None:
        self.controller = Controller(self.server, self.clock, self.around, self.options)

    @property
    def job(self) -> Object | None:
        return self.server.objects[names.JOB].get(KEY)

    @property
    def status(self) -> Object:
        return (self.job or {}).get("status") or {}

    def acting(self, act: Callable[[], None]) -> None:
        """The controller acts: the laws hold for what it writes."""
        self.laws.by_controller = True
        try:
            act()
        finally:
            self.laws.by_controller = False
            self.laws.job = self.controller.seen.obj if self.controller.seen else None

    # The controller.

    @rule(lag=st.sets(st.sampled_from(KINDS)), steps=st.integers(1, 6))
    def work(self, lag: set[str], steps: int) -> None:
        """A few calls, with caches some of which are behind."""
        for kind in KINDS:
            if kind not in lag:
                self.controller.deliver(kind)
        for _ in range(steps):
            self.step()

    @rule(kind=st.sampled_from(KINDS), count=st.integers(1, 3))
    def hear(self, kind: str, count: int) -> None:
        self.controller.deliver(kind, count)

    @rule()
    def crash(self) -> None:
        self.start_controller()

    @rule()
    def settle(self) -> None:
        """Nobody else acts until the controller has nothing to do: then it is asked whether that is so."""
        for _ in range(60):
            self.controller.deliver_all()
            if not self.controller.is_due:
                return self.check_rest()
            self.finish()
        raise AssertionError("the controller never comes to rest")

    def step(self) -> None:
        self.acting(self.controller.step)

    def finish(self) -> None:
        self.step()
        while self.controller.is_working:
            self.step()

    # Pods.

    def pick(self, number: int, of: Callable[[Object], bool] = lambda _: True) -> Object | None:
        pods = [pod for pod in self.kubelet.pods if of(pod)]
        return pods[number % len(pods)] if pods else None

    @rule(rounds=ROUNDS)
    def all_goes_well(self, rounds: int) -> None:
        """Pods end, get nodes and run, and the controller waits for what it waits for."""
        for _ in range(rounds):
            self.settle()
            if not self.kubelet.round():
                self.wait()

    @rule(number=st.integers(0, 5), node=st.sampled_from(NODES))
    def place(self, number: int, node: str) -> None:
        if pod := self.pick(number):
            self.kubelet.place(pod, node)

    @rule(number=st.integers(0, 5), ready=st.booleans())
    def run(self, number: int, ready: bool) -> None:
        if pod := self.pick(number, self.kubelet.may_start):
            self.kubelet.start(pod)
            if ready:
                self.kubelet.make_ready(self.server.get(names.POD, key_of(pod)))

    @rule(number=st.integers(0, 5), all_of_them=st.booleans())
    def succeed(self, number: int, all_of_them: bool) -> None:
        running = [pod for pod in self.kubelet.pods if phase_of(pod) == "Running"]
        for pod in running if all_of_them else running[number : number + 1]:
            self.kubelet.succeed(pod)

    @rule(number=st.integers(0, 5), how=st.sampled_from(sorted(CODES)))
    def fail(self, number: int, how: str) -> None:
        if pod := self.pick(number, lambda pod: phase_of(pod) == "Running"):
            self.kubelet.fail(pod, how)

    @rule(number=st.integers(0, 5), reason=st.sampled_from(["Evicted", "OutOfcpu", "NodeShutdown"]))
    def refuse_by_node(self, number: int, reason: str) -> None:
        if pod := self.pick(number):
            self.kubelet.refuse(pod, reason)

    @rule(number=st.integers(0, 5), reason=st.sampled_from(DISRUPTIONS))
    def disrupt(self, number: int, reason: str) -> None:
        if pod := self.pick(number):
            self.kubelet.disrupt(pod, reason)

    @rule(number=st.integers(0, 5), what=st.sampled_from(["Unschedulable", "ImagePullBackOff"]))
    def hinder(self, number: int, what: str) -> None:
        if pod := self.pick(number):
            self.kubelet.hinder(pod, what)

    @rule(number=st.integers(0, 5), grace=st.sampled_from([0, 30]))
    def delete_pod(self, number: int, grace: int) -> None:
        if pod := self.pick(number):
            self.server.delete(names.POD, key_of(pod), grace=grace)

    @rule(number=st.integers(0, 5), code=st.sampled_from(["", *sorted(CODES)]))
    def confirm(self, number: int, code: str) -> None:
        """A deleted pod ends, or goes on ending on a lost node when this never comes."""
        if pod := self.pick(number, is_going):
            if code:
                self.kubelet.fail(pod, code)
            self.kubelet.confirm(self.server.get(names.POD, key_of(pod)))

    @rule(number=st.integers(0, 5))
    def let_go(self, number: int) -> None:
        if pod := self.pick(number, lambda pod: bool(pod["metadata"].get("finalizers"))):
            self.kubelet.let_go(pod)

    # The user.

    def edit(self, what: str, patch: Object) -> None:
        if self.job is not None:
            before = uid_of(self.job), self.job["metadata"]["resourceVersion"]
            self.server.patch(names.JOB, KEY, patch)
            if before != (uid_of(self.job), self.job["metadata"]["resourceVersion"]):
                self.laws.histories[uid_of(self.job)].asked[what] += 1

    @rule(role=st.sampled_from(ROLES), count=st.integers(0, 3))
    def scale(self, role: str, count: int) -> None:
        if self.job is not None and role in self.job["spec"]:
            self.edit("scale", {"spec": {role: {"replicas": count}}})

    @rule(chance=st.integers(0, 2))
    def suspend(self, chance: int) -> None:
        self.edit("suspend", {"spec": {"suspend": chance == 2}})

    @rule(image=st.sampled_from(["example/train:1", "example/train:2"]))
    def edit_template(self, image: str) -> None:
        held = bool(self.job) and "finalizers" in self.job["spec"]["worker"]["template"]["metadata"]
        self.edit("template", {"spec": {"worker": {"template": _role(0, image, held=held)["template"]}}})

    @rule(limit=st.integers(0, 3), chance=st.integers(0, 9))
    def change_limit(self, limit: int, chance: int) -> None:
        """The API server would refuse -1, had its CRD not been replaced by hand."""
        self.edit("limit", {"spec": {"backoffLimit": -1 if chance == 9 else limit}})

    @rule()
    def ask_for_a_restart(self) -> None:
        self.restarts += 1
        self.edit("restart", {"metadata": {"annotations": {names.ANNOTATION_RESTART: f"{self.restarts}"}}})

    @rule(policy=POLICIES)
    def change_policy(self, policy: str) -> None:
        self.edit("policy", {"spec": {"cleanPodPolicy": policy}})

    @rule(chance=st.integers(0, 4))
    def delete_job(self, chance: int) -> None:
        if chance == 4:
            self.server.delete(names.JOB, KEY)

    @precondition(lambda self: self.job is None)
    @rule(spec=specs())
    def apply_again(self, spec: Object) -> None:
        self.server.create(names.JOB, make_paddle_job(**spec))

    # The rest of the world.

    @rule(seconds=st.sampled_from([1, 10, 31, 61, 301, 3601]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-7200, -5, 5, 7200]))
    def set_wall_clock(self, seconds: int) -> None:
        self.clock.set_wall(seconds)
        self.controller.retry()

    @rule(bus_up=st.booleans())
    def cut_bus(self, bus_up: bool) -> None:
        self.around.bus_up = bus_up
        self.controller.retry()

    @rule(sample_set=st.sampled_from(SAMPLE_SETS), readable=st.booleans())
    def change_data_set(self, sample_set: SampleSet | None, readable: bool) -> None:
        self.around.sample_set, self.around.readable = sample_set, readable
        self.controller.retry()

    @rule(refused=st.sets(st.sampled_from(REFUSABLE), max_size=2))
    def refuse(self, refused: set[Any]) -> None:
        self.around.refused = refused
        self.controller.retry()

    # What is true when the controller rests.

    def check_rest(self) -> None:
        before = self.server.version
        self.finish()
        self.controller.deliver_all()
        assert self.server.version == before, (
            "something was left undone, and nothing would have woken the job"
        )
        if self.job is None:
            return
        assert self.status, "a job without a status"
        self.check_reason()
        self.check_children()
        self.check_patience()

    def check_reason(self) -> None:
        status = self.status
        phase, reason = status["phase"], status["reason"]
        assert reason, f"no reason in phase {phase}"
        if phase in {*FINAL, "Terminating"}:
            return
        is_running = condition(status, "Running").get("status") == "True"
        assert is_running or reason != "AllPodsRunning"
        if reason == "PodsPending" and self.is_free:
            waiting = [p for p in self.kubelet.pods if phase_of(p) == "Pending" or is_going(p)]
            assert waiting, "waits for pods, of which there are none"

    @property
    def is_free(self) -> bool:
        """Neither the API server nor the clock keeps the controller from anything."""
        return not self.around.refused and self.around.readable

    def check_children(self) -> None:
        job, status = self.job, self.status
        if job is None or not self.is_free:
            return None
        pods = self.server.children(names.POD, uid_of(job))
        if status["phase"] == "Terminating":
            return None
        if status["phase"] in FINAL:
            return self.check_clean_up(job, pods)
        if condition(status, "Accepted").get("status") != "True":
            return None
        old = [p for p in pods if epoch_of(p) < status.get("epoch", 0) and not is_going(p)]
        assert not old, "pods of a former epoch are left alone"
        surplus = [p for p in pods if not is_going(p) and not _is_wanted(job, p)]
        assert not surplus, "pods that nobody wants"
        if job["spec"].get("suspend"):
            assert status["reason"] == "Suspended"
            assert all(map(is_going, pods)), "a suspended job holds pods"
        assert (condition(status, "Suspended").get("status") == "True") == bool(job["spec"].get("suspend"))
        self.check_pods_there(job, pods)

    def check_pods_there(self, job: Object, pods: list[Object]) -> None:
        """Unless something is in the way that is said, every wanted pod is there."""
        status = self.status
        is_waiting = (
            any(map(is_going, self.kubelet.pods)) or condition(status, "Admitted")["status"] != "True"
        )
        if is_waiting or (status["reason"] == "Restarting" and self.controller.due_in):
            return
        there = {p["metadata"]["name"] for p in pods}
        for role in ROLES:
            done = (status.get(role) or {}).get("succeededIndexes", [])
            wanted = {f"demo-{role}-{i}" for i in range(replicas(job, role)) if i not in done}
            assert wanted <= there, f"pods are missing: {wanted - there}"

    def check_clean_up(self, job: Object, pods: list[Object]) -> None:
        for pod in pods:
            assert is_going(pod) or not must_go(job, pod), "a pod that cleanPodPolicy takes away"

    def check_patience(self) -> None:
        """Nothing that only time changes is missed: the next pass is asked for before it is needed."""
        seen = self.controller.observe()
        if seen is None or not self.is_free:
            return
        due = self.controller.due_in
        waits = [due - AT_ONCE] if due else [86_400.0, 86_400_000.0]
        for wait in [wait for wait in waits if wait > 0]:
            todo = plan(seen, self.options, self.clock.now() + timedelta(seconds=wait))
            assert not todo.actions, f"{todo.actions} would be due in {wait} s, unasked"
            assert todo.status in (None, seen.status), f"status would change in {wait} s, unasked"

    def teardown(self) -> None:
        """In the end all goes well: then the job runs, or says why not."""
        if not hasattr(self, "controller"):
            return
        self.around.refused, self.around.bus_up, self.around.readable = set(), True, True
        self.around.sample_set = READY
        self.controller.retry()
        if self.job is not None and self.job["spec"].get("backoffLimit") == -1:
            self.edit("limit", {"spec": {"backoffLimit": 1}})
        for _ in range(60):
            self.settle()
            if not self.kubelet.round() and not self.wait():
                break
        else:
            raise AssertionError("the job never comes to rest")
        self.check_healed()

    def wait(self) -> bool:
        """Until the controller wants to look again. False when nothing would come of it."""
        due, before = self.controller.due_in, self.server.version
        if due is None or self.is_healed:
            return False
        self.clock.advance(max(due, 0.001))
        self.settle()
        return self.server.version > before or self.status.get("reason") == "Restarting"

    @property
    def is_healed(self) -> bool:
        job, status = self.job, self.status
        if job is None or status.get("phase") in {"Running", *FINAL}:
            return True
        return status.get("reason") in {"Suspended", "ScaledToZero"}

    def check_healed(self) -> None:
        assert self.is_healed, f"{self.status.get('phase')}: {self.status.get('reason')} {self.status}"
        if self.job is None:
            return
        if "deletionTimestamp" in self.job["metadata"]:
            raise AssertionError("a deleted job stays")


def _is_wanted(job: Object, pod: Object) -> bool:
    return int(pod["metadata"]["name"].rpartition("-")[2]) < replicas(job, role_of(pod))


TestJob = JobMachine.TestCase
TestJob.settings = settings.get_profile("jobs-long" if os.environ.get("PADDLEWHEEL_LONG") else "jobs")
