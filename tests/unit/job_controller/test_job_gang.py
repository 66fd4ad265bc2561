"""Gangs: the kind of PodGroup of a job, its content, which pods take part, what is reported about it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.job_controller.builders import job_of, make_job, make_pod, render

from job_controller.core.changes import find_change
from job_controller.core.job import Job
from job_controller.core.job_status import GangStatus, JobStatus, RoleStatus
from job_controller.core.model import Observed, Options
from job_controller.core.parse import parse_job, parse_pod_group
from job_controller.core.parts import Gang, PodGroup
from job_controller.core.pods import Pod, PodState
from job_controller.core.render import Frame, render_pod
from job_controller.features import with_features
from job_controller.features.gang.choice import choose_gang, decide_gang
from job_controller.features.gang.ignored import gang_events
from job_controller.features.gang.render import pod_shape, render_pod_group
from job_controller.features.gang.resources import are_equal, least_resources
from job_controller.features.gang.rules import gang_gate, gang_hindrance, gang_status, joins
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.crds import ROLES
from paddlewheel.contracts.crds.paddlejob import GangKind, World
from paddlewheel.contracts.quantities import amount
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.hindrance import Hindrance
from paddlewheel.testkit.paddlejobs import collective_example, make_paddle_job, make_role

NONE, VOLCANO, NATIVE = GangKind.NONE, GangKind.VOLCANO, GangKind.NATIVE
BOTH = frozenset({VOLCANO, NATIVE})
ASKED: dict[str, Any] = {"schedulingPolicy": {}}
QUEUED: dict[str, Any] = {"schedulingPolicy": {"queue": "gpu"}}
PLAIN: dict[str, Any] = {"worker": make_role(2)}
BY_VOLCANO: dict[str, Any] = {"ps": make_role(), "worker": make_role(2, schedulerName="volcano")}
BY_ANOTHER: dict[str, Any] = {"worker": make_role(2, schedulerName="stork")}
MIXED: dict[str, Any] = {
    "ps": make_role(1, schedulerName="stork"),
    "worker": make_role(2, schedulerName="volcano"),
}


def annotated(name: str) -> dict[str, Any]:
    role = make_role(2, schedulerName="volcano")
    role["template"]["metadata"] = {"annotations": {"scheduling.k8s.io/group-name": name}}
    return {"worker": role}


# Which kind


@pytest.mark.parametrize(
    ("spec", "installed", "setting", "kind", "ignored"),
    [
        (PLAIN, BOTH, "Auto", NONE, ""),
        (PLAIN | ASKED, BOTH, "Auto", NATIVE, ""),
        (PLAIN | ASKED, {NATIVE}, "Auto", NATIVE, ""),
        (PLAIN | ASKED, {VOLCANO}, "Auto", NONE, "no PodGroups of scheduling.k8s.io"),
        (PLAIN | ASKED, set(), "Auto", NONE, "install Volcano"),
        (PLAIN | QUEUED, BOTH, "Auto", VOLCANO, ""),
        (PLAIN | QUEUED, {NATIVE}, "Auto", NATIVE, "queue without effect"),
        (BY_VOLCANO, BOTH, "Auto", VOLCANO, ""),
        (BY_VOLCANO | ASKED, {VOLCANO}, "Auto", VOLCANO, ""),
        (BY_VOLCANO, {NATIVE}, "Auto", NONE, "Volcano is not installed"),
        (BY_VOLCANO | ASKED, {NATIVE}, "Auto", NONE, "Volcano is not installed"),
        (BY_ANOTHER | QUEUED, BOTH, "Auto", NATIVE, "queue without effect"),
        (BY_ANOTHER, BOTH, "Auto", NONE, ""),
        (MIXED, BOTH, "Auto", NONE, ""),
        (MIXED | ASKED, BOTH, "Auto", NONE, "several schedulers"),
        (annotated("mine"), BOTH, "Auto", NONE, ""),
        (annotated("mine") | ASKED, BOTH, "Auto", NONE, "PodGroup mine"),
        (PLAIN, BOTH, "Volcano", VOLCANO, ""),
        (PLAIN, set(), "Volcano", VOLCANO, ""),
        (BY_ANOTHER, BOTH, "Volcano", NONE, ""),
        (BY_ANOTHER | ASKED, BOTH, "Volcano", NONE, "another scheduler than volcano"),
        (PLAIN, BOTH, "Native", NONE, ""),
        (PLAIN | QUEUED, BOTH, "Native", NATIVE, "queue without effect"),
        (BY_VOLCANO | ASKED, BOTH, "Native", NONE, "does not know Kubernetes' own"),
        (BY_VOLCANO | QUEUED, BOTH, "None", NONE, "switched off"),
        (BY_VOLCANO, BOTH, "None", NONE, ""),
    ],
)
def test_the_kind_follows_the_job_the_cluster_and_the_setting(
    spec: dict[str, Any], installed: set[GangKind], setting: str, kind: GangKind, ignored: str
) -> None:
    gang = choose_gang(make_job(**spec), frozenset(installed), setting)
    assert gang.kind is kind
    assert ignored in gang.ignored
    assert bool(gang.ignored) == bool(ignored)


def test_a_user_may_name_a_native_pod_group() -> None:
    job = make_job(worker=make_role(2, schedulingGroup={"podGroupName": "mine"}), schedulingPolicy={})
    gang = choose_gang(job, BOTH, "Auto")
    assert (gang.kind, "PodGroup mine" in gang.ignored) == (NONE, True)
    assert render(job)["spec"]["schedulingGroup"] == {"podGroupName": "mine"}


@pytest.mark.parametrize(
    ("least", "kind", "size"),
    [(None, NATIVE, 3), (2, NATIVE, 2), (0, NATIVE, 1), (0, VOLCANO, 0), (7, VOLCANO, 7)],
)
def test_the_gang_is_every_pod_unless_the_user_says_how_many(
    least: int | None, kind: GangKind, size: int
) -> None:
    policy = {} if least is None else {"minAvailable": least}
    job = make_job(ps=make_role(1), worker=make_role(2), schedulingPolicy=policy)
    assert choose_gang(job, frozenset({kind}), kind.value).least == size


def test_the_gang_of_an_elastic_job_is_what_it_can_train_with() -> None:
    asked = container(requests={"cpu": 2})
    workers = {"requests": 2} | make_role(8, containers=[asked])
    job = make_job(ps=make_role(1), worker=workers, schedulingPolicy={})
    assert choose_gang(job, BOTH, "Auto").least == 3
    assert least_resources(job) == {"cpu": "4"}
    shrunk = replace(job, status=JobStatus(world=World(workers=5, of=8)))
    group = (group_of(NATIVE, 3),)
    assert joins(seen_of(shrunk, pod_groups=group), Gang(NATIVE, 3)) is NATIVE


def seen_of(job: Job, *pods: Pod, recorded: GangKind | None = None, **fields: Any) -> Observed:
    """An observation with the gang of the status."""
    gang = None if recorded is None else GangStatus(recorded, "demo", len(job.pod_ids))
    job = replace(job, status=replace(job.status, gang=gang))
    return with_features(Observed(job, pods, **({"gang_kinds": BOTH} | fields)))


def group_of(kind: GangKind, size: int = 2, **fields: Any) -> PodGroup:
    native = {"schedulingPolicy": {"gang": {"minCount": size}}}
    return PodGroup(kind, "g", native if kind is NATIVE else {"minMember": size}, **fields)


def test_pods_keep_the_kind_that_they_were_made_with() -> None:
    job, pod = make_job(**(PLAIN | QUEUED)), make_pod("worker", 0)
    assert decide_gang(seen_of(job, recorded=NATIVE)).kind is VOLCANO, "there are no pods"
    assert decide_gang(seen_of(job, pod, recorded=NATIVE)).kind is NATIVE
    late = decide_gang(seen_of(job, pod))
    assert late.kind is NONE
    assert "no effect yet" in late.ignored
    assert "paddlepaddle.org/restart" in late.ignored


def test_pods_made_before_a_crash_belong_to_the_pod_group_that_is_there() -> None:
    seen = seen_of(make_job(**(PLAIN | ASKED)), make_pod("worker", 0), pod_groups=(group_of(NATIVE),))
    assert decide_gang(seen).kind is NATIVE


# What is in it


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": resources}


def test_minimum_resources_are_summed_exactly_over_roles_pods_and_containers() -> None:
    job = make_job(
        ps=make_role(3, containers=[container(requests={"cpu": "100m", "memory": "10Mi"}), {"name": "bare"}]),
        worker=make_role(
            2,
            containers=[
                container(requests={"cpu": "0.7"}, limits={"cpu": 9, "nvidia.com/gpu": 8}),
                container(limits={"nvidia.com/gpu": "1", "memory": "1Gi"}),
            ],
        ),
    )
    assert least_resources(job) == {"cpu": "1700m", "memory": "2078Mi", "nvidia.com/gpu": "2"}


def test_minimum_resources_of_the_user_replace_the_computed_ones() -> None:
    asked = {"cpu": 1, "memory": "1Gi"}
    spec: dict[str, Any] = {"worker": make_role(2, containers=[container(requests=asked)])}
    assert least_resources(make_job(**spec, schedulingPolicy={"minResources": {"cpu": 8}})) == {"cpu": "8"}
    assert least_resources(make_job(**spec, schedulingPolicy={"queue": "q"})) == {"cpu": "2", "memory": "2Gi"}


def test_what_is_no_quantity_is_left_to_the_api_server() -> None:
    asked = {"cpu": "lots", "memory": "1Ki", "big": "1e999999999"}
    assert least_resources(make_job(worker=make_role(2, containers=[container(requests=asked)]))) == {
        "memory": "2048"
    }


_QUANTITY = st.builds("{}{}".format, st.integers(0, 10**12), st.sampled_from(["", "m", "Mi", "G", "u"]))


@given(st.dictionaries(st.sampled_from(ROLES), st.tuples(st.integers(0, 300), _QUANTITY), min_size=1))
def test_sums_lose_nothing(parts: dict[str, tuple[int, str]]) -> None:
    roles: dict[str, Any] = {
        name: make_role(replicas, containers=[container(requests={"x": each})])
        for name, (replicas, each) in parts.items()
    }
    total = sum((replicas * amount(each) for replicas, each in parts.values()), Fraction(0))
    assert amount(least_resources(make_job(**roles))["x"]) == total


def test_amounts_are_compared_as_numbers() -> None:
    assert are_equal({"cpu": "1000m", "memory": "1Gi"}, {"memory": 1073741824, "cpu": 1})
    assert not are_equal({"cpu": "1"}, {"cpu": "1", "memory": "0"})
    assert not are_equal({"cpu": "much"}, {"cpu": "1"})


def test_a_pod_group_of_volcano_is_that_of_the_original_operator() -> None:
    job = job_of(collective_example())
    made = render_pod_group(job, choose_gang(job, BOTH, "Auto"))
    assert (made["apiVersion"], made["kind"]) == ("scheduling.volcano.sh/v1beta1", "PodGroup")
    assert made["metadata"]["name"] == "resnet"
    assert made["metadata"]["ownerReferences"][0]["controller"] is True
    assert made["spec"] == {
        "minMember": 4,
        "minResources": {"cpu": "8", "nvidia.com/gpu": "4"},
        "queue": "gpu",
        "priorityClassName": "high",
    }


def test_pods_of_volcano_are_annotated_in_every_role() -> None:
    job = make_job(**(BY_VOLCANO | QUEUED))
    for role in ("ps", "worker"):
        made = render_pod(
            Frame(job, 36000, Options(), (pod_shape(job, VOLCANO),)),
            next(r for r in job.roles if r.name == role),
            0,
        )
        assert made["spec"]["schedulerName"] == "volcano"
        assert (
            made["metadata"]["annotations"]
            | {
                "scheduling.k8s.io/group-name": "demo",
                "volcano.sh/task-spec": role,
                "volcano.sh/job-name": "demo",
                "volcano.sh/job-version": "0",
                "volcano.sh/queue-name": "gpu",
            }
            == made["metadata"]["annotations"]
        )


def test_a_native_pod_group_has_a_size_and_its_pods_name_it() -> None:
    job = make_job(**(PLAIN | ASKED))
    made = render_pod_group(job, Gang(NATIVE, 2))
    assert made["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    assert made["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    pod = render_pod(Frame(job, 36000, Options(), (pod_shape(job, NATIVE),)), job.roles[0], 0)
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": "demo"}
    assert "schedulerName" not in pod["spec"]


def test_a_pod_group_is_read_unless_something_else_controls_it() -> None:
    raw = {
        "metadata": {"name": "demo", "uid": "g", "ownerReferences": [{"uid": "uid-1", "controller": True}]},
        "spec": {"minMember": 2},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "Unschedulable", "status": "True", "message": "queue is full"}],
        },
    }
    own = parse_pod_group(VOLCANO, raw, "uid-1")
    assert own == PodGroup(VOLCANO, "g", {"minMember": 2}, True, False, "Pending", "queue is full")
    assert parse_pod_group(VOLCANO, raw, "uid-2") is None
    users = parse_pod_group(VOLCANO, {"metadata": {"name": "demo", "uid": "g"}}, "uid-1")
    assert users is not None
    assert not users.is_own


# When pods may be made, and which of them take part

RUNNING = JobStatus(conditions=(Condition("Running", "True", "AllPodsRunning"),))
ADMITTED = JobStatus(conditions=(Condition("Admitted", "True", "NothingToWaitFor"),))


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (None, Reason.GANG_NOT_ENQUEUED),
        ("", Reason.GANG_NOT_ENQUEUED),
        ("Pending", Reason.GANG_NOT_ENQUEUED),
        ("Unknown", Reason.GANG_NOT_ENQUEUED),
        ("Inqueue", None),
        ("Running", None),
    ],
)
def test_no_pod_is_made_before_volcano_lets_the_pod_group_in(
    phase: str | None, reason: Reason | None
) -> None:
    groups = () if phase is None else (group_of(VOLCANO, phase=phase, message="queue is full"),)
    seen = seen_of(make_job(**BY_VOLCANO), pod_groups=groups)
    gate = gang_gate(seen, Gang(VOLCANO, 3))
    assert (gate.reason if gate else None) == reason
    assert gate is None or phase is None or "queue is full" in gate.message


def test_a_running_job_is_not_gated_by_what_becomes_of_its_pod_group() -> None:
    pod = make_pod("worker", 0)
    pending = (group_of(VOLCANO, phase="Pending"),)
    assert gang_gate(seen_of(make_job(**BY_VOLCANO), pod, pod_groups=pending), Gang(VOLCANO, 3)) is None
    admitted = replace(make_job(**BY_VOLCANO), status=ADMITTED)
    assert gang_gate(seen_of(admitted, pod_groups=pending), Gang(VOLCANO, 3)) is None
    running = replace(make_job(**BY_VOLCANO), status=RUNNING)
    assert gang_gate(seen_of(running, pod), Gang(VOLCANO, 9)) is None, "scaled below its minimum"


def test_a_gang_of_more_pods_than_the_job_has_is_refused_with_the_field() -> None:
    gate = gang_gate(seen_of(make_job(**PLAIN)), Gang(NATIVE, 3))
    assert gate is not None
    assert gate.reason is Reason.GANG_TOO_LARGE
    assert gate.message == "spec.schedulingPolicy.minAvailable is 3, and the job has 2 pods; lower it"


def test_the_native_scheduler_holds_the_pods_itself() -> None:
    assert gang_gate(seen_of(make_job(**PLAIN)), Gang(NATIVE, 2)) is None


def test_new_pods_take_part_while_their_gang_can_be_whole() -> None:
    job, gang = make_job(worker=make_role(3), schedulingPolicy={}), Gang(NATIVE, 3)
    group = (group_of(NATIVE, 3),)
    first = make_pod("worker", 0, group="demo")
    assert joins(seen_of(job), gang) is NATIVE
    assert joins(seen_of(job, first, pod_groups=group), gang) is NATIVE
    leaving = make_pod("worker", 1, group="demo", terminating=True)
    assert joins(seen_of(job, first, leaving, pod_groups=group), gang) is NATIVE
    done = JobStatus(roles={"worker": RoleStatus(succeeded_indexes=(1,))})
    assert joins(seen_of(replace(job, status=done), first, pod_groups=group), gang) is NONE
    outside = make_pod("worker", 1)
    assert joins(seen_of(job, first, outside, pod_groups=group), gang) is NONE
    assert joins(seen_of(job, first), Gang(VOLCANO, 3)) is VOLCANO
    assert joins(seen_of(job, first), Gang()) is NONE


def test_a_native_gang_of_another_size_is_made_anew_before_it_has_run() -> None:
    job = make_job(worker=make_role(4), schedulingPolicy={})
    waiting = [make_pod("worker", i, group="demo", state=PodState.PENDING) for i in range(4)]
    assert find_change(seen_of(job, *waiting, recorded=NATIVE, pod_groups=(group_of(NATIVE, 4),))) is None
    resized = seen_of(job, *waiting, recorded=NATIVE, pod_groups=(group_of(NATIVE, 6),))
    change = find_change(resized)
    assert change is not None
    assert change.cause is Reason.SCALED
    begun = replace(resized, pods=(replace(waiting[0], began=True),))
    assert find_change(begun) is None


# Reports

LACKS = "0/1 nodes are available: 1 Insufficient {}. preemption: 0/1 nodes are available: 1 No victims."
HAS_ROOM = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, one or more plugins"
)


def waiting_pod(index: int, words: str = "", **fields: Any) -> Pod:
    hindrance = Hindrance(Reason.UNSCHEDULABLE, words) if words else None
    return make_pod("worker", index, state=PodState.PENDING, group="demo", hindrance=hindrance, **fields)


def test_the_shortage_of_a_gang_is_counted_and_names_the_resources() -> None:
    job = make_job(worker=make_role(5), schedulingPolicy={})
    pods = [
        waiting_pod(0, HAS_ROOM),
        waiting_pod(1, LACKS.format("nvidia.com/gpu")),
        waiting_pod(2, LACKS.format("cpu")),
        waiting_pod(3, LACKS.format("cpu")),
        waiting_pod(4, node="n1"),
    ]
    found = gang_hindrance(seen_of(job, *pods, recorded=NATIVE))
    assert found is not None
    assert found.hindrance == Hindrance(
        Reason.GANG_UNSCHEDULABLE,
        "the gang of 5 is short by 3 pods on cpu and nvidia.com/gpu, so none starts:"
        " free room, or ask for fewer or smaller pods",
    )


def test_without_a_resource_the_scheduler_is_quoted() -> None:
    job = make_job(worker=make_role(2), schedulingPolicy={})
    taint = "0/1 nodes are available: 1 node(s) had untolerated taint {gpu: true}."
    found = gang_hindrance(seen_of(job, waiting_pod(0, HAS_ROOM), waiting_pod(1, taint), recorded=NATIVE))
    assert found is not None
    assert found.hindrance is not None
    assert found.hindrance.message.startswith(
        "the gang of 2 is short by 1 pod, so none starts: pod demo-worker-1: 0/1"
    )


@pytest.mark.parametrize(
    ("pods", "recorded"),
    [
        ((waiting_pod(0, LACKS.format("cpu")), waiting_pod(1)), NATIVE),
        ((waiting_pod(0, HAS_ROOM), waiting_pod(1, HAS_ROOM)), NATIVE),
        ((waiting_pod(0, node="n"), waiting_pod(1, node="n"), waiting_pod(2, LACKS.format("cpu"))), NATIVE),
        ((waiting_pod(0, LACKS.format("cpu")), waiting_pod(1, LACKS.format("cpu"))), NONE),
        ((waiting_pod(0, LACKS.format("cpu")), waiting_pod(1, LACKS.format("cpu"))), None),
    ],
)
def test_a_shortage_is_not_guessed(pods: tuple[Pod, ...], recorded: GangKind | None) -> None:
    job = make_job(worker=make_role(3), schedulingPolicy={"minAvailable": 2})
    gang = None if recorded is None else GangStatus(recorded, "demo", 2)
    assert gang_hindrance(Observed(replace(job, status=JobStatus(gang=gang)), pods)) is None


def test_what_has_no_effect_is_an_event_once() -> None:
    job, gang = make_job(**(PLAIN | ASKED)), Gang(ignored="spec.schedulingPolicy has no effect")
    assert [event.reason for event in gang_events(job, gang)] == ["WithoutEffect"]
    said = Condition("SchedulingPolicyIgnored", "True", "WithoutEffect", gang.ignored)
    known = replace(job, status=JobStatus(conditions=(said,)))
    assert gang_events(known, gang) == ()
    assert gang_events(known, Gang()) == ()
    assert len(gang_events(known, Gang(ignored="for another reason"))) == 1


def test_the_status_shows_the_kind_and_how_far_it_is() -> None:
    job = make_job(worker=make_role(2), schedulingPolicy={})
    placed = [make_pod("worker", i, node="n1", group="demo") for i in range(2)]
    gang = Gang(NATIVE, 2, why="because")
    pending = gang_status(seen_of(job, placed[0]), gang, has_ended=False)
    assert pending == GangStatus(NATIVE, "demo", 2, "Pending", "because")
    scheduled = gang_status(seen_of(job, *placed), gang, has_ended=False)
    assert scheduled is not None
    assert scheduled.phase == "Scheduled"
    ended = gang_status(seen_of(job, *placed), gang, has_ended=True)
    assert ended is not None
    assert ended.phase == ""
    volcano = seen_of(job, pod_groups=(group_of(VOLCANO, phase="Inqueue"),))
    shown = gang_status(volcano, Gang(VOLCANO, 2), has_ended=False)
    assert shown is not None
    assert shown.phase == "Inqueue"
    assert gang_status(seen_of(job), Gang(), has_ended=False) is None


def test_the_status_survives_being_written_and_read() -> None:
    raw = make_paddle_job(**PLAIN)
    raw["metadata"] |= {"uid": "u"}
    status = JobStatus(gang=GangStatus(NATIVE, "demo", 2, "Pending", "because"))
    assert parse_job(raw | {"status": status.render()}).status.gang == status.gang


def test_the_scheduler_volcano_without_volcano_is_said_to_place_no_pod() -> None:
    gang = choose_gang(make_job(**(PLAIN | BY_VOLCANO)), frozenset({NATIVE}), "Auto")
    assert "no effect" not in gang.ignored
    assert gang.ignored.startswith("no scheduler places the pods, because their templates name volcano")
