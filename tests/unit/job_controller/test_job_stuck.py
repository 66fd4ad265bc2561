"""A job that its user must help has each cause once: as a fact, an event and in its status."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.job_controller.builders import make_job, make_pod
from tests.unit.job_controller.conftest import JobHarness

from job_controller.core.gate import Gate
from job_controller.core.model import Observed
from job_controller.core.pods import PodState
from job_controller.features.stuck import observe
from job_controller.features.stuck.rules import seconds_until_stuck, stuck_on
from job_controller.timing import POD_PREPARATION_GRACE_SECONDS
from paddlewheel.contracts.generated.jobs_v1 import JobStuck
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.contracts.stamps import milliseconds_stamp
from paddlewheel.core.errors import Permanent
from paddlewheel.kube.ports import EVENTS, LEASES, PODS, Object, Resource
from paddlewheel.operator.domain.hindrance import Hindrance
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role, make_sample_set, set_sample_set_phase

FIRST, SECOND = Key("default", "demo-worker-0"), Key("default", "demo-worker-1")
OPEN = Gate(True, Reason.NOTHING_TO_WAIT_FOR)
MADE = datetime(2026, 1, 1, tzinfo=UTC)


def waiting(reason: str, message: str = "", last_state: Object | None = None) -> Object:
    """The status of a pod whose container waits."""
    container = {
        "name": "main",
        "image": "example/train:1",
        "state": {"waiting": {"reason": reason, "message": message}},
        "lastState": last_state or {},
    }
    return {"phase": "Pending", "podIP": "10.0.0.1", "containerStatuses": [container]}


CRASHED = waiting("CrashLoopBackOff", "", {"terminated": {"exitCode": 3, "message": "no data"}}) | {
    "phase": "Running"
}
UNSCHEDULED = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
    ],
}
NO_IMAGE = 'pod demo-worker-0: cannot pull image "example/train:1": not found'


def said(harness: JobHarness) -> list[tuple[str, str]]:
    """Reason and message of each JobStuck on the bus."""
    return [(e.data.reason, e.data.message) for e in harness.published if isinstance(e.data, JobStuck)]


async def warnings(harness: JobHarness) -> list[tuple[str, str]]:
    return [(e.reason, e.message) for e in await harness.kubernetes_events() if e.type == "Warning"]


async def start(harness: JobHarness, **spec: Any) -> Key:
    key = await harness.create(make_paddle_job(**({"worker": make_role(2)} | spec)))
    await harness.settle(key)
    return key


async def test_a_missing_image_is_a_fact_and_an_event_once(harness: JobHarness) -> None:
    key = await start(harness)
    for message in ("not found", "not found", ""):
        for pod in (FIRST, SECOND):
            await harness.set_status(pod, waiting("ImagePullBackOff", message), PODS)
            await harness.settle(key)
    assert said(harness) == [("ImagePullBackOff", NO_IMAGE)]
    assert await warnings(harness) == [("ImagePullBackOff", NO_IMAGE)]
    assert (await harness.status(key))["stuckOn"] == ["ImagePullBackOff"]


async def test_a_crash_loop_is_one_fact_however_often_it_runs_in_between(harness: JobHarness) -> None:
    key = await start(harness)
    for _ in range(3):
        await harness.run_pods()
        await harness.settle(key)
        await harness.set_status(FIRST, CRASHED, PODS)
        await harness.settle(key)
    message = "pod demo-worker-0: container main ended with exit code 3: no data"
    assert said(harness) == [("CrashLoopBackOff", message)]
    assert await warnings(harness) == [("CrashLoopBackOff", message)]


async def test_each_cause_is_a_fact_of_its_own(harness: JobHarness) -> None:
    key = await start(harness)
    await harness.set_status(FIRST, waiting("ImagePullBackOff", "not found"), PODS)
    await harness.settle(key)
    await harness.set_status(FIRST, CRASHED, PODS)
    await harness.settle(key)
    assert [reason for reason, _ in said(harness)] == ["ImagePullBackOff", "CrashLoopBackOff"]
    stuck = [e.id.rpartition("/JobStuck/")[2] for e in harness.published if isinstance(e.data, JobStuck)]
    assert stuck == ["0", "1"]


async def test_a_lack_of_room_is_a_cause_once_it_has_lasted(harness: JobHarness) -> None:
    key = await start(harness)
    await harness.set_status(FIRST, UNSCHEDULED, PODS)
    await harness.settle(key)
    result = await harness.reconcile(key)
    assert (said(harness), await warnings(harness)) == ([], [])
    assert result.requeue_after is not None
    await harness.clock.advance(30)
    await harness.settle(key)
    assert said(harness) == [("Unschedulable", "pod demo-worker-0: 0/3 nodes fit")]


async def test_a_pod_that_finds_room_in_time_was_never_stuck(harness: JobHarness) -> None:
    key = await start(harness)
    await harness.set_status(FIRST, UNSCHEDULED, PODS)
    await harness.settle(key)
    await harness.run_pods()
    await harness.clock.advance(60)
    await harness.settle(key)
    assert (said(harness), await warnings(harness)) == ([], [])
    assert "stuckOn" not in await harness.status(key)


async def test_a_failed_data_set_is_a_cause_with_its_own_reason(harness: JobHarness) -> None:
    digits = Key("default", "digits")
    await make_sample_set(harness.cluster, digits)
    await set_sample_set_phase(harness.cluster, digits, "Syncing")
    key = await start(harness, sampleSetRef={"name": "digits", "mountPath": "/data"})
    assert said(harness) == []
    for _ in range(2):
        await set_sample_set_phase(harness.cluster, digits, "SyncFailed", "the bucket does not exist")
        await harness.settle(key)
    message = (
        "pods are created when SampleSet default/digits is Ready; it is SyncFailed: the bucket does not exist"
    )
    assert said(harness) == [("SampleSetFailed", message)]
    assert await warnings(harness) == [("SampleSetFailed", message)]
    condition = await harness.condition(key, "Admitted")
    assert (condition["reason"], condition["message"]) == ("SampleSetFailed", message)


async def test_a_data_set_without_its_secret_has_failed_before_any_sync(harness: JobHarness) -> None:
    digits = Key("default", "digits")
    await make_sample_set(harness.cluster, digits)
    await set_sample_set_phase(harness.cluster, digits, "NotBound", "create Secret digits", "SecretNotFound")
    await start(harness, sampleSetRef={"name": "digits", "mountPath": "/data"})
    ((reason, message),) = said(harness)
    assert (reason, message.endswith("it is NotBound: create Secret digits")) == ("SampleSetFailed", True)


UNPREPARED = {"type": "PodReadyToStartContainers", "status": "False"}
NO_FILES = 'MountVolume.SetUp failed for volume "data" : configmap "files" not found'
SUMMARY = "Unable to attach or mount volumes: unmounted volumes=[data]: timed out"


async def be_unprepared(harness: JobHarness, pod: Key) -> None:
    for name in await harness.pod_names():
        await harness.patch(Key("default", name), {"spec": {"nodeName": "node-1"}}, PODS)
    since = harness.clock.now().isoformat()
    status = {"phase": "Pending", "conditions": [{**UNPREPARED, "lastTransitionTime": since}]}
    await harness.set_status(pod, status, PODS)


async def tell_about(harness: JobHarness, pod: Key, message: str, reason: str = "FailedMount") -> None:
    """The Event that a kubelet writes."""
    about = {"uid": (await harness.get(pod, PODS))["metadata"]["uid"]}
    count = len(await harness.objects(EVENTS))
    event = {"type": "Warning", "reason": reason, "message": message, "involvedObject": about}
    await harness.cluster.create(
        EVENTS, {**event, "metadata": {"namespace": pod.namespace, "name": f"kubelet-{count}"}}
    )


async def test_a_volume_that_cannot_be_mounted_is_a_cause_once_it_has_lasted(harness: JobHarness) -> None:
    key = await start(harness)
    await be_unprepared(harness, FIRST)
    for message in (SUMMARY, NO_FILES):
        await tell_about(harness, FIRST, message)
    await harness.settle(key)
    assert said(harness) == []
    for _ in range(3):
        await harness.clock.advance(30)
        await harness.settle(key)
    assert said(harness) == [("FailedMount", f"pod demo-worker-0: {NO_FILES}")]
    assert (await harness.status(key))["reason"] == "FailedMount"
    await harness.run_pods()
    await harness.settle(key)
    assert (await harness.status(key))["reason"] == "AllPodsRunning"


async def test_a_job_whose_spec_became_wrong_still_has_the_cause_from_events(harness: JobHarness) -> None:
    """Only the clock wakes it."""
    key = await harness.begin(make_paddle_job(worker=make_role(2)))
    await be_unprepared(harness, FIRST)
    await harness.patch(key, {"spec": {"activeDeadlineSeconds": -1}})
    await harness.settle(key)
    await harness.advance(2 * CONFIRM_GRACE_SECONDS)
    await tell_about(harness, FIRST, NO_FILES)
    await harness.advance(POD_PREPARATION_GRACE_SECONDS)
    assert (await harness.condition(key, "Accepted"))["status"] == "False"
    running = await harness.condition(key, "Running")
    assert (running["reason"], running["message"]) == ("FailedMount", f"pod demo-worker-0: {NO_FILES}")


async def test_a_network_that_cannot_be_made_is_a_cause_without_what_changes_in_it(
    harness: JobHarness,
) -> None:
    key = await start(harness)
    await be_unprepared(harness, FIRST)
    sandbox = f'"{"0a" * 32}"'
    words = f"Failed to create pod sandbox: plugin failed to set up network for sandbox {sandbox}: no address"
    await tell_about(harness, FIRST, words, "FailedCreatePodSandBox")
    await harness.clock.advance(30)
    await harness.settle(key)
    ((reason, message),) = said(harness)
    assert (reason, sandbox in message) == ("ContainerCannotStart", False)
    assert message.endswith("set up network for sandbox: no address")


async def test_a_pod_that_nothing_is_said_about_is_asked_about_again(harness: JobHarness) -> None:
    key = await start(harness)
    await be_unprepared(harness, FIRST)
    await harness.clock.advance(30)
    await harness.settle(key)
    assert said(harness) == []
    await tell_about(harness, FIRST, NO_FILES)
    await harness.clock.advance(30)
    await harness.settle(key)
    assert [reason for reason, _ in said(harness)] == ["FailedMount"]


async def test_of_all_jobs_together_few_are_asked_about_at_once(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [await harness.create(make_paddle_job(f"job-{n}", worker=make_role(1))) for n in range(20)]
    for key in keys:
        await harness.settle(key)
        await be_unprepared(harness, Key("default", f"{key.name}-worker-0"))
    await harness.clock.advance(30)
    await harness.catch_up()
    now, most, listed = 0, 0, harness.cluster.list

    async def slowly(resource: Resource, *args: Any, **options: Any) -> Any:
        nonlocal now, most
        if resource != EVENTS:
            return await listed(resource, *args, **options)
        now += 1
        most = max(most, now)
        for _step in range(10):
            await asyncio.sleep(0)
        now -= 1
        return []

    monkeypatch.setattr(harness.cluster, "list", slowly)
    await asyncio.gather(*map(harness.reconcile_stale, keys))
    assert most == observe.EVENTS_AT_ONCE


async def test_events_that_cannot_be_read_hinder_nothing(harness: JobHarness) -> None:
    key = await start(harness)
    await be_unprepared(harness, FIRST)
    await tell_about(harness, FIRST, NO_FILES)

    def refuse(verb: str, resource: Resource, _: Key) -> None:
        if (verb, resource) == ("list", EVENTS):
            raise Permanent("Forbidden", "events are not yours")

    with harness.intercepted(refuse):
        await harness.clock.advance(30)
        await harness.settle(key)
    assert (await harness.status(key))["reason"] == "PodsPending"
    await harness.clock.advance(30)
    await harness.settle(key)
    assert [reason for reason, _ in said(harness)] == ["FailedMount"]


@pytest.mark.parametrize(
    ("reason", "has_config", "seconds", "expected"),
    [
        (Reason.IMAGE_PULL_BACK_OFF, True, 0, Reason.IMAGE_PULL_BACK_OFF),
        (Reason.CONTAINER_CANNOT_START, True, 0, Reason.CONTAINER_CANNOT_START),
        (Reason.UNSCHEDULABLE, True, 29.5, None),
        (Reason.UNSCHEDULABLE, True, 30, Reason.UNSCHEDULABLE),
        (Reason.CONFIG_ERROR, True, 30, Reason.CONFIG_ERROR),
        (Reason.CONFIG_ERROR, False, 300, None),
        (Reason.SCHEDULING_GATED, True, 300, None),
    ],
)
def test_causes(reason: Reason, has_config: bool, seconds: float, expected: Reason | None) -> None:
    pod = make_pod(
        "worker",
        0,
        state=PodState.PENDING,
        hindrance=Hindrance(reason, "m"),
        created_at="2026-01-01T00:00:00Z",
    )
    seen = Observed(make_job(worker=make_role(2)), (pod,), config={} if has_config else None)
    now = MADE + timedelta(seconds=seconds)
    assert stuck_on(seen, OPEN, now) == expected
    assert seconds_until_stuck(seen, now) == (0.5 if seconds == 29.5 else None)


async def test_a_pod_that_no_scheduler_looks_at_names_the_scheduler(harness: JobHarness) -> None:
    key = await start(harness, worker=make_role(2, schedulerName="volcanoo"))
    await harness.advance(29)
    assert (await harness.condition(key, "Running"))["reason"] == "PodsPending"
    await harness.advance(1)
    message = (
        "pod demo-worker-0: scheduler volcanoo has not looked at the pod for 30 s; start this scheduler, or"
        " correct schedulerName in the template"
    )
    running = await harness.condition(key, "Running")
    assert (running["reason"], running["message"]) == ("NoScheduler", message)
    assert said(harness) == [("NoScheduler", message)]
    assert await warnings(harness) == [("NoScheduler", message)]


async def test_a_scheduler_that_is_down_is_named_until_it_looks_at_the_pod(harness: JobHarness) -> None:
    key = await start(harness)
    await harness.advance(31)
    assert "scheduler default-scheduler has not" in (await harness.condition(key, "Running"))["message"]
    for index, pod in enumerate((FIRST, SECOND)):
        await harness.patch(pod, {"spec": {"nodeName": f"node-{index}"}}, PODS)
    await harness.settle(key)
    assert (await harness.condition(key, "Running"))["reason"] == "PodsPending"


async def test_a_pod_that_a_scheduler_has_looked_at_waits_for_no_scheduler(harness: JobHarness) -> None:
    key = await start(harness)
    for pod in (FIRST, SECOND):
        await harness.set_status(pod, {"conditions": [{"type": "PodScheduled", "status": "True"}]}, PODS)
    await harness.settle(key)
    await harness.advance(60)
    assert (await harness.condition(key, "Running"))["reason"] == "PodsPending"


async def place_another(harness: JobHarness, number: int, **template: Any) -> None:
    """The scheduler places a pod of another job."""
    name = f"other-{number}"
    await harness.settle(await harness.create(make_paddle_job(name, worker=make_role(1, **template))))
    pod = Key("default", f"{name}-worker-0")
    await harness.patch(pod, {"spec": {"nodeName": "node-9"}}, PODS)
    await harness.drain_queue()


@pytest.mark.parametrize("scheduler", ["", "example-scheduler"])
async def test_a_scheduler_that_places_other_pods_is_busy(harness: JobHarness, scheduler: str) -> None:
    template = {"schedulerName": scheduler} if scheduler else {}
    key = await start(harness, worker=make_role(2, **template))
    for number in range(300 // 20):
        await harness.advance(20)
        await place_another(harness, number, **template)
        assert (await harness.condition(key, "Running"))["reason"] == "PodsPending"
    await harness.advance(30)
    assert (await harness.condition(key, "Running"))["reason"] == "NoScheduler", "it does nothing any more"


async def test_another_scheduler_that_works_does_not_hide_one_that_nobody_runs(harness: JobHarness) -> None:
    key = await start(harness, worker=make_role(2, schedulerName="volcanoo"))
    await harness.advance(20)
    await place_another(harness, 1)
    await harness.advance(10)
    assert (await harness.condition(key, "Running"))["reason"] == "NoScheduler"


LEASE = Key("kube-system", "kube-scheduler")


async def renew_lease(harness: JobHarness) -> None:
    spec = {"holderIdentity": "a", "renewTime": milliseconds_stamp(harness.clock.now())}
    if await harness.exists(LEASE, LEASES):
        await harness.cluster.patch(LEASES, LEASE, {"spec": spec})
    else:
        metadata = {"name": LEASE.name, "namespace": LEASE.namespace}
        await harness.cluster.create(LEASES, {"metadata": metadata, "spec": spec})


async def pass_time_with_scheduler(harness: JobHarness, seconds: int) -> None:
    """The scheduler renews its Lease every second, and looks at none of the job's pods."""
    for _ in range(seconds):
        await renew_lease(harness)
        await harness.advance(1)


async def start_before_a_restart(harness: JobHarness) -> Key:
    """A job whose pod has waited for a busy scheduler for a minute when the service starts again."""
    key = await start(harness)
    await pass_time_with_scheduler(harness, 60)
    await harness.restart()
    await harness.drain_queue()
    return key


async def test_after_a_restart_of_the_service_a_busy_scheduler_is_not_said_to_be_missing(
    harness: JobHarness,
) -> None:
    key = await start_before_a_restart(harness)
    await pass_time_with_scheduler(harness, 300)
    assert (await harness.condition(key, "Running"))["reason"] == "PodsPending"
    assert said(harness) == []


async def test_after_a_restart_of_the_service_a_scheduler_that_does_nothing_is_found(
    harness: JobHarness,
) -> None:
    key = await start_before_a_restart(harness)
    await harness.advance(29)
    assert (await harness.condition(key, "Running"))["reason"] == "PodsPending"
    for _ in range(30):
        await harness.advance(1)
    assert (await harness.condition(key, "Running"))["reason"] == "NoScheduler"


async def test_a_scheduler_is_not_said_to_be_missing_when_the_first_pass_comes_late(
    harness: JobHarness,
) -> None:
    """Its Lease was last read long ago, for another job."""
    await start(harness)
    await pass_time_with_scheduler(harness, 60)
    await harness.run_pods()
    await harness.drain_queue()
    key = await harness.create(make_paddle_job("late", worker=make_role(1)))
    await harness.reconcile(key)
    await harness.clock.advance(600)
    await renew_lease(harness)
    await harness.settle(key)
    assert (await harness.status(key))["phase"] == "Pending"
    assert said(harness) == []


async def test_a_job_looks_again_whether_its_scheduler_works(harness: JobHarness) -> None:
    """No change of a pod wakes the job."""
    key = await start(harness)
    for _ in range(60):
        await harness.advance(1)
    assert (await harness.condition(key, "Running"))["reason"] == "NoScheduler"
    await pass_time_with_scheduler(harness, 60)
    assert (await harness.condition(key, "Running"))["reason"] == "PodsPending"


@pytest.mark.parametrize(("renews", "reason"), [(True, "PodsPending"), (False, "NoScheduler")])
async def test_a_scheduler_that_renews_its_lease_is_busy_with_pods_of_others(
    harness: JobHarness, renews: bool, reason: str
) -> None:
    """The year in the Lease does not matter."""
    lease = Key("kube-system", "kube-scheduler")
    spec = {"holderIdentity": "a", "renewTime": "2020-01-01T00:00:00.000000Z"}
    metadata = {"name": lease.name, "namespace": lease.namespace}
    await harness.cluster.create(LEASES, {"metadata": metadata, "spec": spec})
    key = await start(harness)
    for second in range(300):
        if renews and second % 2 == 0:
            stamp = f"2020-01-01T00:{second // 60:02}:{second % 60:02}.000000Z"
            await harness.cluster.patch(LEASES, lease, {"spec": {"renewTime": stamp}})
        await harness.advance(1)
    assert (await harness.condition(key, "Running"))["reason"] == reason
