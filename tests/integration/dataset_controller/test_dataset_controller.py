"""One SampleSet's life on a real API server and a real NATS, through invalid input and faults."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import Any

import pytest
from tests.integration.dataset_controller.conftest import DataServiceHarness

from dataset_controller.domain.names import STORAGE_CLASS
from dataset_controller.domain.sampleset.render import CAPACITY
from paddlewheel.bus.ports import KeyValue
from paddlewheel.bus.streams import NODES_BUCKET, RUNS_BUCKET
from paddlewheel.contracts.dataset_names import (
    claim_name,
    node_label,
    pv_name,
    set_label,
)
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.run_keys import RunKey, set_pattern
from paddlewheel.core.errors import NotFound
from paddlewheel.core.tasks import end
from paddlewheel.kube import ports
from paddlewheel.kube.objects import uid_of
from paddlewheel.kube.ports import Object
from paddlewheel.testkit.samplesets import make_sample_job, make_secret
from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.timeout(900)

PATH = ["NotBound", "Bound", "Mount", "Syncing", "Mount", "PartialReady", "Ready"]
VERSION = "paddlepaddle.org/runtime-secret-version"
FACTS = ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]


def encode(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


async def version(data: DataServiceHarness, key: Key) -> int:
    return version_of(await data.get(key))


async def wait_confirmed(data: DataServiceHarness, key: Key) -> None:
    """Until the status says that its facts are published, and its own writes have ended."""

    async def confirmed() -> bool:
        return all(a["announced"] for a in (await data.status(key))["announcements"])

    await eventually(confirmed)


async def test_no_secret_then_a_wrong_key_then_the_right_ones(data: DataServiceHarness) -> None:
    await data.start()
    key = await data.create_set_only(partitions=2)
    missing = await data.wait_condition(key, "Accepted", "SecretNotFound")
    assert f"Secret {data.namespace}/digits does not exist" in missing["message"]
    secret = make_secret(values={"name": "vol", "storage": "redis", "meta-url": "redis://r/0"})
    await data.create(secret, ports.SECRETS)
    wrong = await data.wait_condition(key, "Accepted", "InvalidSecret")
    assert "lacks bucket and metaurl; set stringData.bucket" in wrong["message"]
    assert wrong["message"].endswith("; rename meta-url to metaurl")
    before = await version(data, key)
    await data.cluster.patch(ports.SECRETS, key, {"metadata": {"labels": {"a": "b"}}})
    await data.cluster.patch(ports.SECRETS, key, {"data": {"bucket": encode("b")}})

    async def lacks_one() -> bool:
        conditions = (await data.status(key))["conditions"]
        return any("lacks metaurl" in c["message"] for c in conditions)

    await eventually(lacks_one)
    assert len(await changes_since(data, before)) == 1
    await data.cluster.patch(ports.SECRETS, key, {"data": make_secret()["data"]})
    await data.wait_phase(key, "Ready")

    async def is_counted() -> bool:
        ready = await data.status(key)
        return (ready["runtimeStatus"]["runtimeReady"], ready["cacheStatus"]["totalFiles"]) == ("2/2", "10")

    await eventually(is_counted, what="pods and files in the status")
    await eventually(lambda: data.phases() == PATH, what=str(data.phases()))
    await data.wait_facts(key, *FACTS)
    expected = {("Warning", "SecretNotFound"), ("Warning", "InvalidSecret")}
    expected |= {("Normal", "Synced")}

    async def reported() -> bool:
        return expected <= {(event.type, event.reason) for event in await data.kubernetes_events()}

    await eventually(reported)

    async def are_labelled() -> bool:
        names = sorted(found[set_label("digits")] for found in await data.labels())
        return names == ["digits-runtime-0", "digits-runtime-1"]

    await eventually(are_labelled, what="labels of both nodes")


async def changes_since(data: DataServiceHarness, after: int) -> list[Object]:
    """Versions of the set `digits` after that one, once the watch has reported the last."""
    last = await version(data, data.key("digits"))
    await eventually(lambda: any(version_of(o) == last for o in data.changes))
    return [o for o in data.changes if version_of(o) > after]


def version_of(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


@pytest.mark.long
async def test_a_ready_set_is_not_written_again_while_nothing_changes(
    data: DataServiceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddlewheel.operator.outbox.CONFIRM_GRACE_SECONDS", 1.0)
    await data.start()
    key = await data.create_set()
    await data.wait_phase(key, "Ready")
    uid = (await data.get(key))["metadata"]["uid"]
    await data.runtime.report(uid, 1)
    await wait_confirmed(data, key)
    before = await version(data, key)
    for i in range(5):
        await data.runtime.report(uid, 1)
        pod = {"metadata": {"annotations": {"seen": str(i)}}}
        await data.cluster.patch(ports.PODS, data.key("digits-runtime-0"), pod)
    # The first change that matters: everything before it has been handled by then.
    await data.runtime.report(uid, 1, mounted=False)
    await data.wait_phase(key, "PartialReady")
    first = (await changes_since(data, before))[0]
    assert first["status"]["phase"] == "PartialReady"


async def test_killed_in_the_middle_it_converges(data: DataServiceHarness) -> None:
    data.runtime.script = {"sync": RunPhase.RUNNING, "warmup": RunPhase.RUNNING}
    service = await data.start_process()
    key = await data.create_set(partitions=2, warmup={})
    await eventually(lambda: data.runtime.runs("sync"))
    before = await data.get(data.key("digits-runtime"), ports.STATEFUL_SETS)
    await service.kill()
    [spec] = data.runtime.runs("sync")
    await data.runtime.end(spec, RunPhase.SUCCEEDED)
    await service.start()
    await eventually(lambda: data.runtime.runs("warmup"))
    await service.kill()
    await data.runtime.end(data.runtime.runs("warmup")[0], RunPhase.SUCCEEDED)
    await service.start()
    ready = await data.wait_phase(key, "Ready")
    assert ready["jobsName"]["syncJobName"] == spec.run_id
    assert [len(data.runtime.runs(o)) for o in ("sync", "warmup")] == [1, 1]
    after = await data.get(data.key("digits-runtime"), ports.STATEFUL_SETS)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    await data.wait_facts(key, *FACTS[:3], "SampleSetWarmed", "SampleSetReady")
    assert len({e.id for e in data.events}) == len(data.events)


async def test_a_bus_that_loses_everything_loses_no_run(data: DataServiceHarness) -> None:
    data.runtime.script = {"sync": RunPhase.RUNNING}
    await data.start()
    key = await data.create_set()
    await eventually(lambda: data.runtime.runs("sync"))
    data.nats.lose_data()
    await eventually(lambda: len(data.runtime.runs("sync")) == 2)
    first, second = data.runtime.runs("sync")
    assert first.run_id == second.run_id
    await data.runtime.end(second, RunPhase.SUCCEEDED)
    await data.wait_phase(key, "Ready")


@pytest.mark.long
async def test_facts_wait_for_a_bus_that_is_down(data: DataServiceHarness) -> None:
    data.nats.kill()
    await data.start()
    key = await data.create_set()
    syncing = await data.wait_phase(key, "Syncing")
    assert not any(a["announced"] for a in syncing["announcements"])
    data.nats.start()
    await data.wait_phase(key, "Ready")
    await data.wait_facts(key, *FACTS)


async def test_jobs_run_fail_and_end_with_their_objects(data: DataServiceHarness) -> None:
    await data.start()
    await data.create_set()
    job = make_sample_job("warm", warmupOptions={"paths": ["train"]})
    warm = await data.create(job, ports.SAMPLE_JOBS)
    status = await data.wait_phase(warm, "Succeeded", resource=ports.SAMPLE_JOBS)
    assert (status["progress"]["filesDone"], status["progress"]["cachedPercent"]) == (10, 100)
    assert status["completionTime"]
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    slow = await data.create(make_sample_job("slow"), ports.SAMPLE_JOBS)
    await data.wait_phase(slow, "Running", resource=ports.SAMPLE_JOBS)
    run = data.runtime.runs("warmup")[-1]
    await data.cluster.delete(ports.SAMPLE_JOBS, slow)
    await data.wait_gone(slow, ports.SAMPLE_JOBS)
    records = data.bus.key_value(RUNS_BUCKET)
    await eventually(lambda: is_without(records, RunKey(run.set_uid, run.run_id).pattern))


async def is_without(bucket: KeyValue, pattern: str) -> bool:
    """It has no such record."""
    return await bucket.entries(pattern) == []


@pytest.mark.long
async def test_jobs_of_a_set_run_side_by_side_in_turn_and_after_each_other(data: DataServiceHarness) -> None:
    """Two warmups, one of them cancelled; a clear that waits for both; a removal after it, which goes."""
    service = await data.start_process()
    await data.create_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    warmups = [await create_job(data, name, "Running", type="warmup") for name in ("first", "second")]
    clear = await create_job(data, "clear", "Pending", type="clear")
    waits = await data.wait_condition(clear, "Started", "WaitingForTurn", resource=ports.SAMPLE_JOBS)
    assert waits["message"] == "waits for SampleJob first, SampleJob second"
    spec: dict[str, Any] = {"type": "rmr", "rmrOptions": {"paths": ["old"]}}
    remove = await create_job(data, "remove", "Pending", after=["clear"], ttlSecondsAfterFinished=2, **spec)
    vain = await create_job(data, "vain", "Pending", after=["second"], **spec)
    await service.kill()
    await service.start()
    [run] = [run for run in data.runtime.runs("warmup") if run.run_id == await run_of(data, warmups[0])]
    await data.cluster.delete(ports.SAMPLE_JOBS, warmups[1])
    await data.wait_gone(warmups[1], ports.SAMPLE_JOBS)
    failed = await data.wait_phase(vain, "Failed", resource=ports.SAMPLE_JOBS)
    assert failed["reason"] == "DependencyFailed"
    await data.wait_phase(warmups[0], "Running", resource=ports.SAMPLE_JOBS)
    assert not data.runtime.runs("clear")
    await data.runtime.end(run, RunPhase.SUCCEEDED)
    await data.wait_phase(clear, "Succeeded", resource=ports.SAMPLE_JOBS)
    await data.wait_gone(remove, ports.SAMPLE_JOBS)
    assert [len(data.runtime.runs(kind)) for kind in ("warmup", "clear", "remove")] == [2, 1, 1]


@pytest.mark.long
async def test_a_job_with_terminate_ends_what_runs_and_waits_before_its_own_run(
    data: DataServiceHarness,
) -> None:
    await data.start()
    await data.create_set()
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    # Of jobs of one second, the older is the first by name.
    others = [await create_job(data, "a-runs", "Running", type="warmup")]
    others.append(await create_job(data, "b-waits", "Pending", type="clear"))
    await data.wait_condition(others[1], "Started", "WaitingForTurn", resource=ports.SAMPLE_JOBS)
    spec: dict[str, Any] = {"type": "rmr", "rmrOptions": {"paths": ["old"]}}
    await create_job(data, "c-ends", "Succeeded", terminate=True, **spec)
    for other in others:
        status = await data.wait_phase(other, "Failed", resource=ports.SAMPLE_JOBS)
        assert status["reason"] == "Cancelled"
    assert [len(data.runtime.runs(kind)) for kind in ("warmup", "clear", "remove")] == [1, 0, 1]


async def create_job(data: DataServiceHarness, name: str, phase: str, **spec: Any) -> Key:
    key = await data.create(make_sample_job(name, **spec), ports.SAMPLE_JOBS)
    await data.wait_phase(key, phase, resource=ports.SAMPLE_JOBS)
    return key


async def run_of(data: DataServiceHarness, key: Key) -> str:
    return str((await data.status(key, ports.SAMPLE_JOBS))["jobName"])


@pytest.mark.long
async def test_keys_of_a_job_are_brought_to_the_agents_that_run(data: DataServiceHarness) -> None:
    await data.start()
    key = await data.create_set()
    await data.wait_phase(key, "Ready")
    data.runtime.script = {"sync": RunPhase.RUNNING}
    keys = make_secret("keys", values={"access-key": "JOBAK", "secret-key": "JOBSK"})
    await data.create(keys, ports.SECRETS)
    options = {"source": "s3://other.s3.example.com/more"}
    job = make_sample_job("more", type="sync", secretRef={"name": "keys"}, syncOptions=options)
    more = await data.create(job, ports.SAMPLE_JOBS)
    await data.wait_phase(more, "Running", resource=ports.SAMPLE_JOBS)
    holders = [secret for secret in await data.objects(ports.SECRETS) if encode("JOBAK") in str(secret)]
    assert len(holders) == 2, "the user's Secret and that of the agents"

    async def is_notified() -> bool:
        [pod] = await data.objects(ports.PODS)
        return VERSION in pod["metadata"]["annotations"]

    # A pass later: by the version that the Secret has then.
    await eventually(is_notified, what="the kubelet is told of the new version")


@pytest.mark.long
async def test_a_new_template_reaches_one_pod_after_the_other(data: DataServiceHarness) -> None:
    """Though they have started together."""
    await data.start()
    key = await data.create_set(partitions=3)
    await data.wait_phase(key, "Ready")

    async def ready() -> set[str]:
        """The uids of the ready pods."""
        pods = await data.objects(ports.PODS)
        states = (
            (uid_of(pod), c["type"], c["status"])
            for pod in pods
            for c in pod["status"].get("conditions") or ()
        )
        return {uid for uid, type_, status in states if (type_, status) == ("Ready", "True")}

    async def are_ready() -> bool:
        return len(await ready()) == 3

    await eventually(are_ready, what="all pods are ready")  # the agents of this test report before
    before, seen = await ready(), list[set[str]]()

    async def are_replaced() -> bool:
        seen.append(await ready())
        return len(seen[-1] - before) == 3

    tolerations = [*(await data.get(key))["spec"]["tolerations"], {"key": "else", "operator": "Exists"}]
    await data.cluster.patch(ports.SAMPLE_SETS, key, {"spec": {"tolerations": tolerations}})
    await eventually(are_replaced, within=120, every=0.02, what="all pods are new")
    assert min(map(len, seen)) >= 2, (before, seen)


@pytest.mark.long
async def test_a_claim_that_is_deleted_by_hand_is_made_anew_and_bound(data: DataServiceHarness) -> None:
    """Kubernetes' own binder gives no claim the volume of another one."""
    await data.start()
    key = await data.create_set()
    await data.wait_phase(key, "Ready")
    claim = Key(key.namespace, claim_name(key.name))
    uids = {uid_of(await data.cluster.get(ports.PERSISTENT_VOLUME_CLAIMS, claim))}
    for _ in range(2):
        await data.cluster.delete(ports.PERSISTENT_VOLUME_CLAIMS, claim)

        async def bound_again() -> Object | None:
            claims = await data.objects(ports.PERSISTENT_VOLUME_CLAIMS)
            new = (each for each in claims if uid_of(each) not in uids)
            return next((each for each in new if each["status"].get("phase") == "Bound"), None)

        found = await eventually(bound_again)
        volume = await data.cluster.get(ports.PERSISTENT_VOLUMES, Key("", found["spec"]["volumeName"]))
        assert volume["spec"]["claimRef"]["uid"] == uid_of(found)
        uids.add(uid_of(found))
    await data.wait_phase(key, "Ready")


@pytest.mark.long
async def test_an_old_runtime_becomes_parallel_and_keeps_its_pods(data: DataServiceHarness) -> None:
    """As the upgrade page says; the controller makes it anew, and Kubernetes gives it the pods."""
    service = await data.start_process()
    key = await data.create_set(partitions=2)
    await data.wait_phase(key, "Ready")
    await service.stop()
    await make_ordered(data)
    await service.start()
    before = await data.wait_objects(ports.PODS, 2)
    without_label: list[str] = []
    watching = asyncio.create_task(note_lost_labels(data, without_label))
    await data.cluster.delete(ports.STATEFUL_SETS, data.runtime_key(), propagation="Orphan")
    await eventually(lambda: owner_of_pods(data, "Parallel"), what="a Parallel one has the pods")
    await data.wait_phase(key, "Ready")
    await eventually(lambda: has_settled(data), what="it has found its pods")
    after = await data.objects(ports.PODS)
    assert [(uid_of(pod), pod["spec"]) for pod in after] == [(uid_of(pod), pod["spec"]) for pod in before]
    assert not any("deletionTimestamp" in pod["metadata"] for pod in after)
    await end(watching)
    assert without_label == []
    assert data.runtime.runs("clear") == []
    await data.cluster.patch(ports.SAMPLE_SETS, key, {"spec": {"partitions": 3}})
    await data.wait_objects(ports.PODS, 3)
    await data.wait_phase(key, "Ready")


async def make_ordered(data: DataServiceHarness) -> None:
    """As a version made it whose pods start one after the other."""
    key = data.runtime_key()
    made = await data.get(key, ports.STATEFUL_SETS)
    await data.cluster.delete(ports.STATEFUL_SETS, key, propagation="Orphan")
    await data.wait_gone(key, ports.STATEFUL_SETS)
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {name: made["metadata"][name] for name in kept}
    spec = {**made["spec"], "podManagementPolicy": "OrderedReady"}
    await data.cluster.create(ports.STATEFUL_SETS, {**made, "metadata": metadata, "spec": spec, "status": {}})
    await eventually(lambda: owner_of_pods(data, "OrderedReady"), what="it has the pods")


async def owner_of_pods(data: DataServiceHarness, policy: str) -> bool:
    """The only StatefulSet has this policy, and all pods."""
    owners = await data.objects(ports.STATEFUL_SETS)
    if [each["spec"]["podManagementPolicy"] for each in owners] != [policy]:
        return False
    pods = await data.objects(ports.PODS)
    found = [each["uid"] for pod in pods for each in pod["metadata"].get("ownerReferences") or ()]
    return found == [uid_of(owners[0])] * len(pods)


async def note_lost_labels(data: DataServiceHarness, found: list[str]) -> None:
    """Nodes that said that the set is mounted there, and do not any more."""
    label, labelled = node_label(data.namespace, "digits"), set[str]()
    async for change in data.cluster.watch(ports.NODES):
        name = change.obj["metadata"]["name"]
        if label in change.obj["metadata"].get("labels", {}):
            labelled.add(name)
        elif name in labelled:
            found.append(name)


async def has_settled(data: DataServiceHarness) -> bool:
    """Kubernetes has counted the pods, and replaces none."""
    [runtime] = await data.objects(ports.STATEFUL_SETS)
    status = runtime["status"]
    is_seen = status.get("observedGeneration") == runtime["metadata"]["generation"]
    is_current = status.get("currentRevision") == status.get("updateRevision")
    is_ready = status.get("readyReplicas") == runtime["spec"]["replicas"]
    return bool(is_seen and is_current and is_ready)


@pytest.mark.long
async def test_a_volume_of_somebody_else_without_our_label_is_named_and_never_used(
    data: DataServiceHarness,
) -> None:
    """Kubernetes binds the claim to it, since that names its volume."""
    volume = Key("", pv_name(data.namespace, "digits"))
    await data.cluster.create(ports.PERSISTENT_VOLUMES, foreign_volume(volume.name))
    await data.start()
    key = await data.create_set()
    refused = await data.wait_condition(key, "Reconciled", "OwnedByAnother")
    assert (
        f"PersistentVolume {volume.name} exists and does not belong to this SampleSet" in refused["message"]
    )
    claim = data.key(claim_name("digits"))
    await data.wait_phase(claim, "Bound", resource=ports.PERSISTENT_VOLUME_CLAIMS)
    await data.cluster.patch(ports.SAMPLE_SETS, key, {"spec": {"partitions": 2}})
    generation = (await data.get(key))["metadata"]["generation"]
    await data.wait_status(key, {"observedGeneration": generation, "phase": "NotBound"})
    assert await data.objects(ports.STATEFUL_SETS) == []
    await data.cluster.delete(ports.PERSISTENT_VOLUMES, volume)
    with suppress(NotFound):
        await data.cluster.patch(ports.PERSISTENT_VOLUMES, volume, {"metadata": {"finalizers": None}})
    await data.wait_phase(key, "Ready")
    made = await data.cluster.get(ports.PERSISTENT_VOLUMES, volume)
    assert made["spec"]["claimRef"]["uid"] == uid_of(await data.get(claim, ports.PERSISTENT_VOLUME_CLAIMS))


def foreign_volume(name: str) -> Object:
    """Unbound, and just what the claim of a set asks for."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": CAPACITY},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/somewhere/else"},
        },
    }


@pytest.mark.long
async def test_scaling_and_deleting_leave_nothing_behind(data: DataServiceHarness) -> None:
    await data.start()
    key = await data.create_set(partitions=2)
    await data.wait_phase(key, "Ready")
    uid = (await data.get(key))["metadata"]["uid"]
    await data.cluster.patch(ports.SAMPLE_SETS, key, {"spec": {"partitions": 1}})
    await eventually(lambda: data.phases()[-2:] == ["PartialReady", "Ready"])
    await eventually(lambda: data.phases().count("Ready") == 2)
    assert [c.clear.partitions for c in data.runtime.runs("clear") if c.clear] == [[1]]

    async def is_on_one_node() -> bool:
        return len(await data.labels()) == 1

    await eventually(is_on_one_node, what="the node that was given up has no label")
    await data.cluster.delete(ports.SAMPLE_SETS, key)
    await data.wait_gone(key)
    for resource in (ports.STATEFUL_SETS, ports.PERSISTENT_VOLUME_CLAIMS, ports.SERVICES, ports.PODS):
        await data.wait_objects(resource, 0)
    await data.wait_gone(Key("", pv_name(data.namespace, "digits")), ports.PERSISTENT_VOLUMES)

    async def has_no_label() -> bool:
        return await data.labels() == []

    await eventually(has_no_label, what="nodes without a label of the set")
    await eventually(lambda: is_without(data.bus.key_value(RUNS_BUCKET), set_pattern(uid)))
    await eventually(lambda: data.facts(key)[-1] == "SampleSetDeleted")


async def test_no_child_of_somebody_else_is_used(data: DataServiceHarness) -> None:
    await data.start()
    key = await data.create_set()
    await data.wait_phase(key, "Ready")
    await data.take_away(key, ports.PERSISTENT_VOLUMES, Key("", pv_name(data.namespace, "digits")))
    await data.take_away(key, ports.PERSISTENT_VOLUME_CLAIMS, data.key(claim_name("digits")))
    await data.take_away(key, ports.SERVICES, data.key("digits-runtime-service"))
    await data.take_away(key, ports.STATEFUL_SETS, data.runtime_key())


@pytest.mark.long
async def test_a_set_keeps_nodes_that_have_writes_to_upload_until_the_user_gives_them_up(
    data: DataServiceHarness,
) -> None:
    await data.start()
    key = await data.create_set(partitions=2)
    await data.wait_phase(key, "Ready")
    uid = (await data.get(key))["metadata"]["uid"]
    await data.runtime.report(uid, 2, staged_bytes=3 << 20)
    await eventually(lambda: has_staged(data, key, "6.0 MiB"))
    await data.cluster.patch(ports.SAMPLE_SETS, key, {"spec": {"partitions": 1}})
    waits = await data.wait_condition(key, "Scaling", "StagedWrites", within=90)
    assert "3.0 MiB on node" in waits["message"]
    # The figures of a partition that is to leave stay, and with them the node that the user has to name.
    await data.runtime.report(uid, 2, staged_bytes=4 << 20)
    await eventually(lambda: has_staged(data, key, "8.0 MiB"))
    await data.cluster.delete(ports.SAMPLE_SETS, key)
    await data.wait_condition(key, "Free", "StagedWrites", within=90)
    assert data.runtime.runs("clear") == []
    runtime = await data.cluster.get(ports.STATEFUL_SETS, data.key("digits-runtime"))
    assert runtime["spec"]["replicas"] == 2
    nodes = ",".join(node["node"] for node in (await data.status(key))["cacheStatus"]["nodes"])
    given_up = {"metadata": {"annotations": {"paddlepaddle.org/discard-staged-writes": nodes}}}
    await data.cluster.patch(ports.SAMPLE_SETS, key, given_up)
    await data.wait_gone(key)
    assert len(data.runtime.runs("clear")) == 1


@pytest.mark.long
async def test_a_writeback_set_waits_for_reports_that_the_bus_has_lost(data: DataServiceHarness) -> None:
    service = await data.start_process()
    options = {"juiceFSMountOptions": {"writeback": True}}
    key = await data.create_set(csi={"driver": "juicefs", **options})
    await data.wait_phase(key, "Ready")
    uid, bucket = (await data.get(key))["metadata"]["uid"], data.bus.key_value(NODES_BUCKET)
    data.runtime.fall_silent(uid)
    await service.kill()
    for entry in await bucket.entries(set_pattern(uid)):
        await bucket.delete(entry.key)
    await data.cluster.delete(ports.SAMPLE_SETS, key)
    await service.start()
    await eventually(lambda: is_silent(data, key))
    assert data.runtime.runs("clear") == []
    await data.runtime.report(uid, 1)
    await data.wait_gone(key)


async def is_silent(data: DataServiceHarness, key: Key) -> bool:
    """The controller knows that no agent has reported."""
    conditions = (await data.get(key))["status"]["conditions"]
    return any("an amount that no agent has reported on node" in c["message"] for c in conditions)


async def has_staged(data: DataServiceHarness, key: Key, size: str) -> bool:
    """Whether the controller knows of them."""
    return bool((await data.get(key))["status"]["cacheStatus"].get("stagedSize") == size)


@pytest.mark.long
async def test_a_child_that_the_api_server_refuses_is_shown_and_hides_no_other(
    data: DataServiceHarness,
) -> None:
    quota = {"metadata": {"name": "no-services"}, "spec": {"hard": {"services": "0"}}}
    await data.create(quota, QUOTAS)
    await eventually(lambda: is_enforced(data))
    await data.start()
    key = await data.create_set()
    refused = await data.wait_condition(key, "Reconciled", "FailedCreate")
    assert "exceeded quota" in refused["message"]
    await data.wait_phase(key, "Ready")
    await data.wait_facts(key, *FACTS)
    await data.cluster.delete(QUOTAS, data.key("no-services"))
    await data.wait_condition(key, "Reconciled", "Recovered", within=90)
    assert await data.exists(data.key("digits-runtime-service"), ports.SERVICES)


QUOTAS = ports.Resource("", "v1", "resourcequotas", "ResourceQuota")


async def is_enforced(data: DataServiceHarness) -> bool:
    """The quota's controller has counted what there is."""
    return "hard" in await data.status(data.key("no-services"), QUOTAS)
