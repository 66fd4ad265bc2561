"""Random histories of two jobs against the pure planner; what must be true of them is in `laws` and `world`.

A pass of the controller is made of single calls of the API: between any two of them pods, nodes, users and
other controllers act, and the process may be killed. Its caches are the real ones and lag behind. The jobs
may share nodes that have too little room, which die without a word, and a quota.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.unit.job_controller.properties.kubelet import (
    CODES,
    DISRUPTIONS,
    ENDED,
    NODES,
    SCHEDULER,
    epoch_of,
    is_going,
    node_of,
    phase_of,
)
from tests.unit.job_controller.properties.server import KEY, KEYS, KINDS, RIVAL
from tests.unit.job_controller.properties.world import READY, Pick, World, make_sample_set

from job_controller.core import names
from job_controller.core.model import Options
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.stamps import seconds_stamp
from paddlewheel.kube.objects import key_of, uid_of, version_of
from paddlewheel.kube.ports import Object
from paddlewheel.operator.domain.plan import Create, Delete, Patch
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_template

pytestmark = pytest.mark.slow
LONG = "PADDLEWHEEL_LONG_PROPERTIES"
"""Variable with the number of random histories, for a run of hours."""

HELD = ["example.com/held"]
POLICIES = st.sampled_from(["", "Always", "Never", "OnFailure", "OnCompletion", "OnFailed"])
RULES = st.sampled_from(
    [
        [],
        [{"action": "Ignore", "exitCodes": [3]}],
        [{"action": "Fail", "exitCodes": [2]}],
        [{"action": "Restart", "reasons": ["OOMKilled"], "limit": 1}],
        [{"action": "Restart", "reasons": ["PodDeleted", "Evicted"], "limit": 2}],
    ]
)
SAMPLE_SETS = st.sampled_from(
    [
        None,
        READY,
        READY,
        make_sample_set("Syncing", "40 %"),
        make_sample_set("Failed", "no bucket", "SyncFailed"),
    ]
)
REFUSABLE = [
    *((Create, kind) for kind in (names.POD, names.CONFIG_MAP, names.SERVICE_KIND)),
    *((verb, names.POD) for verb in (Patch, Delete)),
]
GATES = st.sampled_from(
    [
        Options(),
        Options(gate_image="example/gate:1", gate_url="http://gate"),
    ]
)
ROUNDS = st.sampled_from([0, 1, 3, 6, 6])
NUMBERS = st.integers(0, 5)
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
"""One in so many jobs has the optional field."""


@st.composite
def specs(draw: st.DrawFn) -> Object:
    """Specs of small jobs, each with few of the fields that matter."""
    scope = draw(st.sampled_from(["Gang", "Gang", "Pod"]))
    spec: Object = {
        "worker": make_role(draw(st.integers(1, 3)), held=draw(st.booleans())),
        "intranet": draw(st.sampled_from(["", "", "Service", "Host"])),
        "cleanPodPolicy": draw(POLICIES),
        "failurePolicy": {"restartScope": scope, "rules": draw(RULES)},
    }
    some = {
        "ps": make_role(1),
        "elastic": 1,
        "suspend": True,
        "backoffLimit": draw(st.integers(0, 3)),
        "activeDeadlineSeconds": draw(st.sampled_from([5, 60, 600])),
        "ttlSecondsAfterFinished": draw(st.sampled_from([0, 30])),
        "sampleSetRef": {"name": "data", "mountPath": "/data"},
        "withGloo": 1,
    }
    if draw(st.integers(1, 3)) == 3:
        spec["worker"]["requests"] = 1
    chosen = {name for name, one_in in CHANCES.items() if draw(st.integers(1, one_in)) == one_in}
    return spec | {name: some[name] for name in sorted(chosen)}


def make_role(count: int, image: str = "example/train:1", *, held: bool = False) -> Object:
    """Pods that may be held by a finalizer of others."""
    template = make_template()
    template["spec"]["containers"][0]["image"] = image
    template["metadata"] = {"finalizers": HELD} if held else {}
    return {"replicas": count, "template": template}


RIVALS = st.one_of(st.none(), specs())
"""Another job on the same nodes, in half of the histories."""


with_job = precondition(lambda self: self.job is not None)
with_pods = precondition(lambda self: bool(self.kubelet.pods))


class JobMachine(World, RuleBasedStateMachine):
    """The rules of a job's world. Rules whose names begin with `the_user` are its user's deeds."""

    def __init__(self) -> None:
        World.__init__(self)
        RuleBasedStateMachine.__init__(self)
        self.asked = 0

    @initialize(
        spec=specs(), gate=GATES, sample_set=SAMPLE_SETS, rounds=ROUNDS, rival=RIVALS, room=st.integers(0, 5)
    )
    def begin(
        self,
        spec: Object,
        gate: Options,
        sample_set: Object | None,
        rounds: int,
        rival: Object | None = None,
        room: int = 0,
    ) -> None:
        """`room`: pods that fit on all nodes, 0 for any number."""
        self.options = gate
        self.around.sample_set = sample_set
        if room:
            self.kubelet.slots = {NODES[0]: 1, NODES[1]: room}
        self.server.create(names.JOB, make_paddle_job(**spec))
        if rival:
            self.server.create(names.JOB, make_paddle_job(RIVAL.name, **rival))
        self.start()
        self.go_well(rounds)

    def teardown(self) -> None:
        if self.controller is None:
            return
        if self.job is not None and self.job["spec"].get("backoffLimit") == -1:
            self.edit("limit", {"spec": {"backoffLimit": 1}})
        self.heal()

    # The controller.

    @rule(lag=st.sets(st.sampled_from(KINDS)), calls=st.integers(1, 6), chance=st.integers(0, 1))
    def work(self, lag: set[str], calls: int, chance: int) -> None:
        """A few calls, with caches some of which are behind."""
        for kind in KINDS:
            if kind not in lag:
                self.service.deliver(kind)
        for _ in range(calls):
            self.step(chance)

    @rule(kind=st.sampled_from(KINDS), count=st.integers(1, 3))
    def hear(self, kind: str, count: int) -> None:
        self.service.deliver(kind, count)

    @rule(late=st.booleans())
    def crash(self, late: bool) -> None:
        self.restart(late=late)

    @rule()
    def late_call_arrives(self) -> None:
        self.call_late()

    @rule()
    def rest(self) -> None:
        self.settle()

    @rule(seconds=st.sampled_from([5, 31, 61, 301]))
    def go_on(self, seconds: int) -> None:
        self.live_on(seconds)

    @rule(rounds=ROUNDS)
    def all_goes_well(self, rounds: int) -> None:
        self.go_well(rounds)

    @rule(chance=st.integers(0, 3))
    def all_rests(self, chance: int) -> None:
        if chance == 3:
            self.come_to_rest()

    # Nodes.

    @rule(node=st.sampled_from(NODES), chance=st.integers(0, 3))
    def node_dies(self, node: str, chance: int) -> None:
        """Without a word."""
        if chance == 3:
            self.laws.dead_once.add(node)
            self.kubelet.dead.setdefault(node, self.clock.elapsed)

    @rule(node=st.sampled_from(NODES), seconds=st.sampled_from([-300, -60, -15, 15, 60, 300]))
    def set_clock_of_node(self, node: str, seconds: int) -> None:
        self.kubelet.ahead[node] = seconds

    @rule(chance=st.integers(0, 3))
    def scheduler_stops(self, chance: int) -> None:
        if chance == 3:
            self.kubelet.dead.setdefault(SCHEDULER, self.clock.elapsed)

    @rule()
    def scheduler_starts(self) -> None:
        self.kubelet.dead.pop(SCHEDULER, None)

    @rule(node=st.sampled_from(NODES))
    def node_comes_back(self, node: str) -> None:
        self.kubelet.dead.pop(node, None)

    @rule(node=st.sampled_from(NODES))
    def node_is_declared_out_of_service(self, node: str) -> None:
        if node in self.kubelet.dead:
            self.kubelet.declare_out_of_service(node)

    @rule(pods=st.sampled_from([None, None, 0, 1, 2, 4]))
    def set_quota(self, pods: int | None) -> None:
        self.server.quota = pods
        self.service.retry()

    # Pods.

    def pick(self, number: int, of: Pick = lambda _: True) -> Object | None:
        pods = [pod for pod in self.kubelet.pods if of(pod)]
        return pods[number % len(pods)] if pods else None

    @with_pods
    @rule(number=NUMBERS, node=st.sampled_from(NODES))
    def place(self, number: int, node: str) -> None:
        pod = self.pick(number)
        if pod is not None and SCHEDULER not in self.kubelet.dead:
            self.kubelet.place(pod, node)

    @with_pods
    @rule(number=NUMBERS, ready=st.booleans())
    def run(self, number: int, ready: bool) -> None:
        if pod := self.pick(number, self.kubelet.may_start):
            self.kubelet.start(pod)
            if ready:
                self.kubelet.make_ready(self.server.get(names.POD, key_of(pod)))

    @with_pods
    @rule(number=NUMBERS, all_of_them=st.booleans())
    def succeed(self, number: int, all_of_them: bool) -> None:
        one = self.pick(number, lambda pod: phase_of(pod) == "Running")
        for pod in self.kubelet.pods:
            if all_of_them or pod is one:
                self.kubelet.succeed(pod)

    @with_pods
    @rule(number=NUMBERS)
    def collect(self, number: int) -> None:
        """Kubernetes collects what has ended when there is too much of it."""
        if pod := self.pick(number, lambda pod: phase_of(pod) in ENDED):
            self.server.delete(names.POD, key_of(pod), grace=0)

    @with_pods
    @rule(number=NUMBERS, how=st.sampled_from(sorted(CODES)))
    def fail(self, number: int, how: str) -> None:
        if pod := self.pick(number, lambda pod: phase_of(pod) == "Running"):
            self.kubelet.fail(pod, how)

    @with_pods
    @rule(number=NUMBERS, reason=st.sampled_from(["Evicted", "OutOfcpu", "NodeShutdown"]))
    def refuse_by_node(self, number: int, reason: str) -> None:
        if pod := self.pick(number):
            self.kubelet.refuse(pod, reason)

    @with_pods
    @rule(number=NUMBERS, reason=st.sampled_from(DISRUPTIONS))
    def disrupt(self, number: int, reason: str) -> None:
        if pod := self.pick(number):
            self.kubelet.disrupt(pod, reason)

    @with_pods
    @rule(number=NUMBERS, what=st.sampled_from(["Unschedulable", "ImagePullBackOff"]))
    def hinder(self, number: int, what: str) -> None:
        if pod := self.pick(number):
            self.kubelet.hinder(pod, what)

    @with_pods
    @rule(number=NUMBERS, grace=st.sampled_from([0, 30]))
    def delete_pod(self, number: int, grace: int) -> None:
        if pod := self.pick(number):
            self.server.delete(names.POD, key_of(pod), grace=grace)

    @with_pods
    @rule(number=NUMBERS, code=st.sampled_from(["", *sorted(CODES)]))
    def confirm(self, number: int, code: str) -> None:
        """A deleted pod has ended; on a lost node this never comes."""
        if pod := self.pick(number, lambda pod: is_going(pod) and node_of(pod) not in self.kubelet.dead):
            if code:
                self.kubelet.fail(pod, code)
            self.kubelet.confirm(self.server.get(names.POD, key_of(pod)))

    @with_pods
    @rule(number=NUMBERS)
    def let_go(self, number: int) -> None:
        if pod := self.pick(number, lambda pod: bool(pod["metadata"].get("finalizers"))):
            self.kubelet.let_go(pod)

    @with_pods
    @rule(step=st.integers(1, 9), seconds=st.sampled_from([1.0, 60.0]))
    def report(self, step: int, seconds: float) -> None:
        """A program reports its progress. Another writer records it in the job's status."""
        if self.status.get("phase") == "Running":
            at = seconds_stamp(self.clock.now())
            progress = {"step": step, "updatedAt": at, "intervalSeconds": seconds}
            self.server.patch(names.JOB, KEY, {"status": {"progress": progress}})

    # The user.

    def edit(self, what: str, patch: Object) -> None:
        """Change the job; the laws count what really was a change."""
        job = self.job
        if job is not None and version_of(self.server.patch(names.JOB, KEY, patch)) != version_of(job):
            self.laws.histories[uid_of(job)].asked[what] += 1

    @with_job
    @rule(role=st.sampled_from(["ps", "worker", "worker"]), count=st.integers(0, 3))
    def the_user_scales(self, role: str, count: int) -> None:
        if self.job and role in self.job["spec"]:
            self.edit("scale", {"spec": {role: {"replicas": count}}})

    @with_job
    @rule(suspend=st.booleans())
    def the_user_suspends(self, suspend: bool) -> None:
        self.edit("suspend", {"spec": {"suspend": suspend}})

    @with_pods
    @rule(
        number=NUMBERS,
        node=st.sampled_from(NODES),
        crashes=st.booleans(),
        before=st.sampled_from([0, 5, 40]),
        away=st.sampled_from([0, 8, 30, 70]),
        after=st.sampled_from([0, 1, 8, 30, 70]),
    )
    def a_node_crashes_and_a_peer_fails(
        self, number: int, node: str, crashes: bool, before: int, away: int, after: int
    ) -> None:
        """The user may suspend the job meanwhile. The API server may be away for a while, or be all that is
        wrong."""
        peer = self.pick(number, lambda pod: phase_of(pod) == "Running" and node_of(pod) != node)
        if peer is None:
            return
        if crashes:
            self.laws.dead_once.add(node)
            self.kubelet.dead.setdefault(node, self.clock.elapsed)
        self.kubelet.fail(peer, "exit-1")
        self.live_on(before)
        self.lose_leases(away)
        self.live_on(after)

    def lose_leases(self, seconds: float) -> None:
        begin, self.kubelet.cannot_reach_server = self.clock.elapsed, True
        self.live_on(seconds)
        self.kubelet.outages.append((begin, self.clock.elapsed))
        self.kubelet.cannot_reach_server = False

    @with_job
    @rule(image=st.sampled_from(["example/train:1", "example/train:2"]))
    def the_user_edits_the_template(self, image: str) -> None:
        container = {"name": "main", "image": image}
        self.edit("template", {"spec": {"worker": {"template": {"spec": {"containers": [container]}}}}})

    @with_job
    @rule()
    def the_user_restarts(self) -> None:
        self.asked += 1
        self.edit("restart", {"metadata": {"annotations": {names.ANNOTATION_RESTART: f"{self.asked}"}}})

    @with_job
    @rule(limit=st.integers(0, 3), chance=st.integers(0, 9))
    def the_user_changes_the_limit(self, limit: int, chance: int) -> None:
        """The API server would refuse -1, had its CRD not been replaced by hand."""
        self.edit("limit", {"spec": {"backoffLimit": -1 if chance == 9 else limit}})

    @with_job
    @rule(policy=POLICIES)
    def the_user_changes_the_policy(self, policy: str) -> None:
        self.edit("policy", {"spec": {"cleanPodPolicy": policy}})

    @with_job
    @rule(chance=st.integers(0, 4))
    def the_user_deletes_the_job(self, chance: int) -> None:
        if chance == 4 and self.job is not None:
            self.laws.histories[uid_of(self.job)].is_deleted_by_user = True
            self.server.delete(names.JOB, KEY)

    @precondition(lambda self: self.job is None)
    @rule(spec=specs())
    def the_user_applies_again(self, spec: Object) -> None:
        self.server.create(names.JOB, make_paddle_job(**spec))

    # The rest of the world.

    @rule(seconds=st.sampled_from([1, 10, 31, 61, 301, 3601]))
    def pass_time(self, seconds: int) -> None:
        """The process hangs meanwhile."""
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-7200, -5, 5, 7200]))
    def set_wall_clock(self, seconds: int) -> None:
        self.clock.set_wall(seconds)
        self.service.retry()

    @rule(bus_up=st.booleans())
    def cut_bus(self, bus_up: bool) -> None:
        self.set_bus(bus_up)

    @rule(sample_set=SAMPLE_SETS, readable=st.booleans())
    def change_data_set(self, sample_set: Object | None, readable: bool) -> None:
        self.set_data_set(sample_set, readable=readable)

    @rule(key=st.sampled_from(KEYS))
    def another_replica_had_the_job(self, key: Key) -> None:
        """Nothing that is remembered of the job may be needed."""
        if not self.service.jobs[key].is_working:
            self.service.jobs[key].forget()
            self.service.retry()

    @rule(refused=st.sets(st.sampled_from(REFUSABLE), max_size=2))
    def refuse(self, refused: set[Any]) -> None:
        self.around.refused = refused
        self.service.retry()


def test_a_pod_may_wait_to_be_made_again_while_another_is_hindered() -> None:
    """The status has the obstacle, since time alone does not remove it."""
    job = JobMachine()
    spec = {"worker": make_role(3), "backoffLimit": 3, "failurePolicy": {"restartScope": "Pod"}}
    job.begin(spec=spec, gate=Options(), rounds=1, sample_set=READY)
    job.refuse_by_node(0, "Evicted")
    job.rest()
    job.hinder(1, "ImagePullBackOff")
    job.place(2, NODES[0])
    job.refuse_by_node(2, "Evicted")
    job.rest()
    assert job.status["reason"] == "ImagePullBackOff"
    assert {pod["metadata"]["name"] for pod in job.kubelet.pods} == {"demo-worker-1", "demo-worker-2"}
    job.teardown()


def test_a_pod_that_is_created_after_its_epoch_was_over_goes_before_the_next_epoch_begins() -> None:
    """The call of a process that was killed, which the API server got to only then."""
    job = JobMachine()
    spec = {"worker": make_role(4), "backoffLimit": 2, "cleanPodPolicy": "Never"}
    job.begin(spec=spec, gate=Options(), rounds=3, sample_set=READY)
    fail_and_end(job)
    while not job.kubelet.pods:
        job.step()
    job.restart(late=False)
    job.go_well(3)
    fail_and_end(job)
    assert (job.status["epoch"], job.kubelet.pods) == (2, []), "the second failure in a row waits 10 s"
    job.call_late()
    assert [epoch_of(pod) for pod in job.kubelet.pods] == [1]
    job.settle()
    assert job.kubelet.pods == []
    job.teardown()


def test_a_job_may_be_deleted_before_its_first_status() -> None:
    job = JobMachine()
    spec = {"worker": make_role(1), "failurePolicy": {"restartScope": "Gang"}}
    job.begin(spec=spec, gate=Options(), rounds=0, sample_set=None)
    job.work(calls=4, chance=1, lag=set())
    job.the_user_deletes_the_job(chance=4)
    job.hear(count=1, kind="PaddleJob")
    job.let_go(number=0)
    job.let_go(number=0)
    job.teardown()


def test_a_scheduler_that_stops_is_named_until_it_works_again() -> None:
    job = JobMachine()
    job.begin(spec={"worker": make_role(2)}, gate=Options(), rounds=0, sample_set=None)
    job.scheduler_stops(chance=3)
    job.all_rests(chance=3)
    assert job.status["reason"] == "NoScheduler"
    job.scheduler_starts()
    job.all_rests(chance=3)
    assert job.status["reason"] == "AllPodsRunning"
    job.teardown()


def test_a_job_that_is_refused_before_its_first_status_counts_no_restart_before_it_is_accepted() -> None:
    job = JobMachine()
    spec = {"worker": make_role(2), "failurePolicy": {"restartScope": "Gang"}}
    job.begin(spec=spec, gate=Options(), rounds=0, sample_set=None)
    job.rest()
    job.delete_pod(number=0, grace=0)
    job.disrupt(number=0, reason="PreemptionByScheduler")
    job.the_user_changes_the_limit(chance=9, limit=0)
    job.rest()
    assert not job.status.get("restarts")
    job.teardown()


def test_a_deadline_is_not_missed_while_the_verdict_on_a_failure_waits_for_a_node() -> None:
    job = JobMachine()
    spec = {"worker": make_role(2), "activeDeadlineSeconds": 5}
    job.begin(spec=spec, gate=Options(), rounds=3, sample_set=None, room=1)
    job.a_node_crashes_and_a_peer_fails(0, NODES[0], crashes=False, before=5, away=0, after=0)
    job.teardown()


def test_the_pods_of_an_expired_job_go_in_time_while_its_facts_wait_for_the_bus() -> None:
    job = JobMachine()
    spec = {"worker": make_role(1), "ttlSecondsAfterFinished": 0, "cleanPodPolicy": "OnFailed"}
    spec["activeDeadlineSeconds"] = 60
    job.begin(spec=spec, gate=Options(), rounds=6, sample_set=None)
    job.cut_bus(bus_up=False)
    job.go_on(61)
    job.go_on(5)
    job.teardown()


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("before", [0, 5, 40])
@pytest.mark.parametrize("away", [0, 8, 30, 70])
def test_an_outage_of_the_api_server_neither_hides_nor_pretends_the_crash_of_a_node(
    crashes: bool, before: int, away: int
) -> None:
    job = JobMachine()
    spec = {"worker": make_role(2), "backoffLimit": 3}
    job.begin(spec=spec, gate=Options(), rounds=9, sample_set=None, room=1)
    job.a_node_crashes_and_a_peer_fails(0, NODES[1], crashes=crashes, before=before, away=away, after=70)
    assert list(job.status["restarts"]) == ["NodeLost" if crashes else "PodFailed"]
    job.teardown()


def fail_and_end(job: JobMachine) -> None:
    """A pod fails, and the pods of its epoch end."""
    job.fail(2, "exit-1")
    job.settle()
    for pod in job.kubelet.pods:
        job.kubelet.confirm(pod)
    job.service.deliver_all()


TestJob = pytest.mark.timeout(0 if LONG in os.environ else 900)(JobMachine.TestCase)
# After a failure hypothesis looks for a shorter history, which takes minutes.
TestJob.settings = settings(
    max_examples=int(os.environ.get(LONG, "30")),
    # The short suite has the same histories in each run. The long one looks for new ones.
    derandomize=LONG not in os.environ,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
