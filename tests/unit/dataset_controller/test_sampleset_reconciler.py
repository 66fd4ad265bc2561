"""A SampleSet's life over fakes: path, children, Secrets, runs, scaling, deletion."""

from __future__ import annotations

import asyncio
import base64
from typing import Any
from unittest.mock import AsyncMock

import pytest
from tests.unit.dataset_controller.builders import node_figures
from tests.unit.dataset_controller.conftest import LABEL, RUNTIME, SET, DataHarness

from dataset_controller.domain.indexes import kept_of_pod
from dataset_controller.domain.names import DISCARD_ANNOTATION
from dataset_controller.watch import make_watch
from paddlewheel.bus.streams import DATASETS, NODES_BUCKET
from paddlewheel.contracts.dataset_names import home_label, node_label, set_label
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.generated.datasets_v1 import SampleSetReady, SampleSetWarmed
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import annotations_of
from paddlewheel.core.errors import Retry
from paddlewheel.core.tasks import end
from paddlewheel.kube import ports
from paddlewheel.kube.ports import Object, Objects, Resource
from paddlewheel.operator.outbox import CONFIRM_GRACE_SECONDS
from paddlewheel.testkit.samplesets import make_sample_set, make_secret

FACTS = ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]
VOLUME = Key("", "default.digits")
SERVICE = Key("default", "digits-runtime-service")


async def test_a_set_walks_the_whole_path(data: DataHarness) -> None:
    await data.start_set(partitions=2)
    ready = await data.expect_phase("Ready")
    assert data.phases == ["NotBound", "Bound", "Mount", "Syncing", "Mount", "PartialReady", "Ready"]
    assert ready["runtimeStatus"] == {"specReplicas": 2, "readyReplicas": 2, "runtimeReady": "2/2"}
    assert ready["cacheStatus"] == {
        "totalSize": "20 MiB",
        "totalFiles": "10",
        "cachedSize": "20 MiB",
        "cachedPercent": 100,
        "cacheCapacity": "0 B",
        "stagedSize": "0 B",
        "diskSize": "2.0 GiB",
        "diskUsed": "246 MiB",
        "diskAvail": "1.7 GiB",
        "diskUsageRate": "12.3%",
        "errorMassage": "",
        "nodes": [node_figures(i, 100) for i in range(2)],
    }
    assert data.facts() == FACTS
    assert await data.labels() == {"node-0": "0", "node-1": "1"}


async def test_the_ready_fact_carries_the_figures(data: DataHarness) -> None:
    uid = await data.ready_set()
    event = data.published[-1]
    assert event.id == f"{uid}/SampleSetReady/0"
    assert event.subject == f"pw.evt.datasets.sampleset.ready.v1.default.{uid}"
    assert isinstance(event.data, SampleSetReady)
    assert event.data.figures
    assert (event.data.partitions, event.data.figures.total_files) == (1, 10)
    assert event.data.figures.total_bytes == 20 << 20


RECHECK = 6
"""Seconds within which a changed Secret is noticed while a set waits for one."""


async def test_children_of_a_set(data: DataHarness) -> None:
    uid = await data.ready_set()
    volume = await data.get(VOLUME, ports.PERSISTENT_VOLUMES)
    owned = [
        await data.get(SET, ports.PERSISTENT_VOLUME_CLAIMS),
        await data.get(SERVICE, ports.SERVICES),
        await data.get(RUNTIME, ports.STATEFUL_SETS),
    ]
    for obj in (volume, *owned):
        assert obj["metadata"]["labels"][set_label("digits")] == "true"
        assert obj["metadata"]["labels"]["paddlepaddle.org/sampleset"] == "default.digits"
        assert obj["metadata"]["annotations"]["CreatedBy"] == "paddle-operator"
    pods = await data.cluster.list(ports.PODS, label_selector="paddlepaddle.org/sampleset=default.digits")
    assert [pod["metadata"]["name"] for pod in pods] == ["digits-runtime-0"]
    [claim, *runtime] = owned
    assert claim["metadata"]["ownerReferences"][0]["uid"] == uid
    for obj in (volume, *runtime):
        assert "ownerReferences" not in obj["metadata"]
        assert obj["metadata"]["annotations"]["paddlepaddle.org/sampleset-uid"] == uid
    assert volume["spec"]["hostPath"]["path"] == f"/var/lib/paddlewheel/mnt/{uid}/view/data"
    created = [e.message for e in await data.kubernetes_events() if e.reason == "SuccessfulCreate"]
    assert sorted(created) == [
        "created PersistentVolume default.digits",
        "created Service default/digits-runtime-service, Secret default/digits-runtime,"
        " PersistentVolumeClaim default/digits",
        "created StatefulSet default/digits-runtime",
    ]


async def test_of_runtime_pods_containers_and_volumes_are_not_kept(data: DataHarness) -> None:
    """They are most of a pod, and nothing reads them."""
    await data.ready_set()
    (pod,) = await data.cluster.list(ports.PODS)
    assert set(pod["spec"]) > {"containers", "volumes", "nodeName"}
    assert kept_of_pod(pod) == {**pod, "spec": {"nodeName": "node-0"}}
    informer = make_watch(data.cluster, "", "default", data.clock).of("Pod")
    task = asyncio.create_task(informer.run())
    await informer.wait_synced()
    await end(task)
    assert informer.list() == [kept_of_pod(pod)]


async def test_a_csi_driver_is_used_where_it_is_installed(data: DataHarness) -> None:
    await data.create({"metadata": {"name": "csi.juicefs.com"}}, ports.CSI_DRIVERS)
    options = {"juiceFSMountOptions": {"writeback": True, "attr-cache": 7200, "open-cache": 0}}
    author = make_secret()
    extra = {
        "envs": "{LD_PRELOAD: /x}",
        "format-options": "block-size=1",
        "access-key": "a",
        "secret-key": "s",
    }
    author["data"] |= {name: base64.b64encode(value.encode()).decode() for name, value in extra.items()}
    await data.create(author, ports.SECRETS)
    await data.create(make_sample_set(csi={"driver": "juicefs", **options}))
    await data.drive()
    await data.expect_phase("Ready")
    csi = (await data.get(VOLUME, ports.PERSISTENT_VOLUMES))["spec"]["csi"]
    assert (csi["driver"], csi["volumeHandle"]) == ("csi.juicefs.com", "default.digits")
    assert csi["nodePublishSecretRef"] == {"name": "digits-runtime-volume", "namespace": "default"}
    own = await data.get(Key("default", "digits-runtime-volume"), ports.SECRETS)
    keys = {"access-key", "bucket", "metaurl", "name", "secret-key", "storage"}
    assert own["data"].items() == {name: author["data"][name] for name in keys}.items()
    assert csi["volumeAttributes"]["mountOptions"].startswith("attr-cache=7200,cache-dir=")
    assert csi["volumeAttributes"]["mountOptions"].endswith(",writeback")


async def test_the_csi_drivers_secret_follows_the_engines_and_goes_with_the_set(data: DataHarness) -> None:
    await data.create({"metadata": {"name": "csi.juicefs.com"}}, ports.CSI_DRIVERS)
    uid = await data.ready_set(csi={"driver": "juicefs"})
    new = base64.b64encode(b"redis://new:6379/1").decode()
    await data.patch(SET, {"data": {"metaurl": new}}, ports.SECRETS)
    await data.advance(30)
    await data.runtime.report(uid, 1)
    await data.drive()
    assert (await data.get(Key("default", "digits-runtime-volume"), ports.SECRETS))["data"]["metaurl"] == new
    await data.delete(SET)
    await data.wait(6)
    assert await data.names(ports.SECRETS) == ["digits"]


async def test_a_node_that_gets_another_sets_label_does_not_wake_a_set(data: DataHarness) -> None:
    await data.ready_set()
    other = {"metadata": {"labels": {node_label("default", "other"): "0"}}}
    await data.cluster.patch(ports.NODES, Key("", "node-0"), other)
    await data.catch_up()
    assert not data.woken


@pytest.mark.parametrize("taken", [[LABEL], [LABEL, set_label("digits")], [set_label("digits")]])
async def test_a_label_that_somebody_takes_is_put_back_at_once(data: DataHarness, taken: list[str]) -> None:
    """No report comes meanwhile, and no time passes."""
    await data.ready_set(partitions=2)
    before = await data.get(Key("", "node-0"), ports.NODES)
    await data.cluster.patch(ports.NODES, Key("", "node-0"), {"metadata": {"labels": dict.fromkeys(taken)}})
    await data.catch_up()
    await data.drive()
    after = await data.get(Key("", "node-0"), ports.NODES)
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    await data.expect_phase("Ready")


async def test_a_secret_that_was_written_is_not_read(data: DataHarness) -> None:
    """The answer has it."""
    read: list[str] = []

    def note(verb: str, resource: Resource, key: Key) -> None:
        if (verb, resource.plural) == ("get", "secrets"):
            read.append(key.name)

    with data.intercepted(note):
        await data.ready_set()
    assert read.count("digits-runtime") == 1


async def test_a_set_outlives_the_csi_driver_that_mounts_it(data: DataHarness) -> None:
    """Its Secret is not made again each second, follows the author's, and is not left behind."""
    await data.create({"metadata": {"name": "csi.juicefs.com"}}, ports.CSI_DRIVERS)
    uid = await data.ready_set(csi={"driver": "juicefs"})
    await data.wait(5)
    await data.cluster.delete(ports.CSI_DRIVERS, Key("", "csi.juicefs.com"))
    await data.drive()
    asked: list[tuple[str, str]] = []

    def note(verb: str, resource: Resource, key: Key) -> None:
        asked.append((verb, resource.plural))

    with data.intercepted(note):
        await data.patch(SET, {"metadata": {"annotations": {"touched": "1"}}})
        await data.wait(5)
    assert ("create", "secrets") not in asked
    new = base64.b64encode(b"redis://new:6379/1").decode()
    await data.patch(SET, {"data": {"metaurl": new}}, ports.SECRETS)
    await data.advance(30)
    await data.runtime.report(uid, 1)
    await data.drive()
    assert (await data.get(Key("default", "digits-runtime-volume"), ports.SECRETS))["data"]["metaurl"] == new
    await data.delete(SET)
    await data.wait(6)
    assert await data.names(ports.SECRETS) == ["digits"]


async def test_names_that_read_alike_are_volumes_apart(data: DataHarness) -> None:
    for namespace, name in (("team", "a-b"), ("team-a", "b")):
        await data.create(make_secret(name, namespace), ports.SECRETS)
        await data.create(make_sample_set(name, namespace))
        await data.drive()
        await data.expect_phase("Ready", Key(namespace, name))
    assert await data.names(ports.PERSISTENT_VOLUMES) == ["team-a.b", "team.a-b"]


OLD_VOLUME = Key("", "default-digits")


async def rename_volume(data: DataHarness, **spec: Any) -> None:
    """As an older version has made it."""
    made = await data.get(VOLUME, ports.PERSISTENT_VOLUMES)
    meta = {name: made["metadata"][name] for name in ("labels", "annotations")}
    old = {**made, "metadata": {**meta, "name": OLD_VOLUME.name}, "spec": {**made["spec"], **spec}}
    await data.cluster.delete(ports.PERSISTENT_VOLUMES, VOLUME)
    await data.cluster.create(ports.PERSISTENT_VOLUMES, old)
    await data.patch(SET, {"spec": {"volumeName": OLD_VOLUME.name}}, ports.PERSISTENT_VOLUME_CLAIMS)
    await data.drive()


async def test_a_volume_of_an_older_version_stays_the_sets_own_and_goes_with_it(data: DataHarness) -> None:
    await data.ready_set()
    await rename_volume(data)
    await data.wait(5)
    assert await data.names(ports.PERSISTENT_VOLUMES) == [OLD_VOLUME.name]
    await data.delete(SET)
    await data.wait(6)
    assert await data.names(ports.PERSISTENT_VOLUMES) == []


async def test_after_its_claim_was_deleted_by_hand_a_set_gets_another_one_with_a_volume_of_its_own(
    data: DataHarness,
) -> None:
    await data.ready_set()
    await rename_volume(data)
    await data.cluster.delete(ports.PERSISTENT_VOLUME_CLAIMS, SET)
    await data.wait(6)
    assert await data.names(ports.PERSISTENT_VOLUMES) == [VOLUME.name]
    claim = await data.get(SET, ports.PERSISTENT_VOLUME_CLAIMS)
    volume = await data.get(VOLUME, ports.PERSISTENT_VOLUMES)
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]


async def test_a_volume_of_an_older_version_gets_no_runtime_that_mounts_elsewhere(data: DataHarness) -> None:
    uid = await data.ready_set()
    await rename_volume(data, hostPath={"path": f"/var/lib/paddlewheel/mnt/{uid}"})
    await data.expect_phase("Ready")
    await data.delete(RUNTIME, ports.STATEFUL_SETS)
    await data.wait(6)
    message = (await data.expect_condition("Accepted", "VolumeLayoutChanged"))["message"]
    assert message.startswith("PersistentVolume default-digits is at")
    assert not await data.exists(RUNTIME, ports.STATEFUL_SETS)
    assert await data.names(ports.PERSISTENT_VOLUMES) == [OLD_VOLUME.name]


async def test_a_claim_that_names_the_volume_of_another_set_gives_no_right_to_it(data: DataHarness) -> None:
    await data.ready_set()
    await data.create(make_secret(namespace="other"), ports.SECRETS)
    await data.create(make_sample_set(namespace="other"))
    other = Key("other", "digits")
    await data.drive()
    await data.patch(other, {"spec": {"volumeName": VOLUME.name}}, ports.PERSISTENT_VOLUME_CLAIMS)
    await data.drive()
    refused = await data.condition(other, "Accepted")
    assert refused
    assert refused["reason"] == "OwnedByAnother"
    await data.delete(other)
    await data.wait(6)
    assert VOLUME.name in await data.names(ports.PERSISTENT_VOLUMES)


async def test_without_sync_nothing_is_copied(data: DataHarness) -> None:
    uid = await data.start_set(noSync=True, source=None)
    await data.expect_phase("Mount")
    await data.runtime.report(uid, 1)
    await data.drive()
    await data.expect_phase("Ready")
    assert data.phases == ["NotBound", "Bound", "Mount", "PartialReady", "Ready"]
    assert data.runtime.seen == []
    assert "SampleSetSynced" not in data.facts()


async def test_a_pass_without_a_change_writes_nothing(data: DataHarness) -> None:
    uid = await data.ready_set()
    await data.wait(5)
    with data.counted_writes() as writes:
        for i in range(5):
            await data.runtime.report(uid, 1)
            pod = {"metadata": {"annotations": {"seen": str(i)}}}
            await data.patch(Key("default", "digits-runtime-0"), pod, ports.PODS)
            await data.drive()
    assert writes == {("patch", "pods"): 5}
    with data.counted_writes() as writes:
        await data.runtime.report(uid, 1, mounted=False)
        await data.drive()
    await data.expect_phase("PartialReady")
    assert writes == {("patch-status", "samplesets"): 1, ("patch", "nodes"): 1}


async def test_an_own_status_write_wakes_only_the_jobs_of_the_set(data: DataHarness) -> None:
    uid = await data.ready_set()
    await data.wait(5)
    await data.runtime.report(uid, 1, mounted=False)
    await data.catch_up()
    assert data.woken == [SET]
    data.forget_woken()
    await data.reconcile(SET)
    await data.expect_phase("PartialReady")
    await data.catch_up()
    assert data.woken == []


async def test_writes_of_a_whole_path_are_few(data: DataHarness) -> None:
    await data.ready_set()
    await data.wait(CONFIRM_GRACE_SECONDS)
    # Each phase, the run that has started, the figures, and the confirmation of the last fact.
    assert data.cluster.writes["patch-status", "samplesets"] <= 11
    assert data.cluster.writes["patch", "samplesets"] == 1
    assert data.cluster.writes["create", "statefulsets"] == 1
    assert all(announced for _, _, announced in await data.announcements())


async def test_a_missing_then_invalid_then_valid_secret(data: DataHarness) -> None:
    await data.create(make_sample_set())
    await data.drive()
    missing = await data.expect_condition("Accepted", "SecretNotFound")
    assert "default/digits does not exist" in missing["message"]
    await data.create(make_secret("other"), ports.SECRETS)
    await data.drive()
    assert await data.condition(SET, "Accepted") == missing
    await data.create(make_secret(values={"storage": "redis", "metaurl": "redis://r/0"}), ports.SECRETS)
    await data.wait(RECHECK)
    invalid = await data.expect_condition("Accepted", "InvalidSecret")
    assert "lacks name and bucket" in invalid["message"]
    assert await data.objects(ports.PERSISTENT_VOLUMES) == []
    await data.patch(SET, {"data": make_secret()["data"]}, ports.SECRETS)
    await data.wait(RECHECK)
    await data.expect_phase("Ready")
    await data.expect_condition("Accepted", "Accepted")
    assert await data.event_reasons() >= {("Warning", "SecretNotFound"), ("Warning", "InvalidSecret")}


async def test_a_secret_of_another_type_is_refused(data: DataHarness) -> None:
    await data.create(make_secret(kind="kubernetes.io/basic-auth"), ports.SECRETS)
    await data.create(make_sample_set())
    await data.drive()
    assert "type Opaque" in (await data.expect_condition("Accepted", "InvalidSecret"))["message"]


async def test_a_foreign_service_is_left_alone(data: DataHarness) -> None:
    foreign = {"metadata": {"name": SERVICE.name, "namespace": "default"}, "spec": {"ports": []}}
    before = await data.cluster.create(ports.SERVICES, foreign)
    await data.start_set()
    trouble = await data.expect_condition("Reconciled", "OwnedByAnother")
    assert "delete it or rename the set" in trouble["message"]
    assert await data.get(SERVICE, ports.SERVICES) == before


async def test_a_foreign_volume_is_recognized_by_its_annotation(data: DataHarness) -> None:
    before = await data.cluster.create(ports.PERSISTENT_VOLUMES, {"metadata": {"name": VOLUME.name}})
    await data.start_set()
    await data.expect_condition("Reconciled", "OwnedByAnother")
    assert (await data.get(VOLUME, ports.PERSISTENT_VOLUMES))["metadata"]["uid"] == before["metadata"]["uid"]
    assert ("Warning", "OwnedByAnother") in await data.event_reasons()


async def test_credentials_never_reach_the_bus(data: DataHarness) -> None:
    uri = "s3://URIKEY:URI%2FSECRET@bucket.s3.example.com/digits"
    await data.ready_set(source={"uri": uri})
    [spec] = data.runtime.runs("sync")
    assert spec.sync
    assert (spec.sync.source, spec.sync.secret) == ("s3://bucket.s3.example.com/digits", "source")
    secret = await data.get(RUNTIME, ports.SECRETS)
    values = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert (values["source.access-key"], values["source.secret-key"]) == ("URIKEY", "URI/SECRET")
    assert values["engine.metaurl"] == "redis://:pw@redis:6379/0"
    stored = b"".join(m.data for m in data.bus.stored(DATASETS.name)).decode() + spec.model_dump_json()
    assert not any(word in stored for word in ("URIKEY", "URI/SECRET", "pw@redis", "AK", "SK"))


async def test_a_failed_sync_waits_for_a_change(data: DataHarness) -> None:
    data.runtime.script = {"sync": RunPhase.FAILED}
    uid = await data.start_set()
    failed = await data.expect_phase("SyncFailed")
    assert ("Warning", "SyncFailed") in await data.event_reasons()
    first = failed["jobsName"]["syncJobName"]
    await data.patch(SET, {"metadata": {"annotations": {"touched": "1"}}})
    await data.drive()
    assert (await data.expect_condition("Synced", "FilesFailed"))["message"] == "the script says so"
    assert (len(data.runtime.runs("sync")), data.facts()[-1]) == (1, "SampleSetSyncFailed")
    data.runtime.script = {}
    await data.patch(SET, {"spec": {"source": {"uri": "s3://other/digits"}}})
    await data.drive()
    ready = await data.expect_phase("Ready")
    assert ready["jobsName"]["syncJobName"] != first
    assert [s.sync.source for s in data.runtime.runs("sync") if s.sync][-1] == "s3://other/digits"
    assert data.phases[4:6] == ["SyncFailed", "Mount"]
    assert not any(first in key for key in await data.records())
    assert f"{uid}/SampleSetSyncFailed/0" in {event.id for event in data.published}


async def test_a_failed_sync_is_tried_again_with_a_corrected_secret(data: DataHarness) -> None:
    data.runtime.script = {"sync": RunPhase.FAILED}
    await data.start_set()
    await data.expect_phase("SyncFailed")
    data.runtime.script = {}
    await data.patch(SET, {"data": {"secret-key": "bmV3"}}, ports.SECRETS)
    await data.wait(RECHECK)
    await data.expect_phase("Ready")


async def test_a_second_failed_sync_is_another_attempt_of_the_fact(data: DataHarness) -> None:
    data.runtime.script = {"sync": RunPhase.FAILED}
    uid = await data.start_set()
    await data.patch(SET, {"spec": {"source": {"uri": "s3://other/digits"}}})
    await data.drive()
    await data.expect_phase("SyncFailed")
    failed = [event.id for event in data.published if "SyncFailed" in event.id]
    assert failed == [f"{uid}/SampleSetSyncFailed/0", f"{uid}/SampleSetSyncFailed/1"]


async def test_a_failed_sync_is_given_up_with_no_sync(data: DataHarness) -> None:
    data.runtime.script = {"sync": RunPhase.FAILED}
    await data.start_set()
    await data.expect_phase("SyncFailed")
    await data.patch(SET, {"spec": {"noSync": True}})
    await data.drive()
    await data.expect_phase("Ready")
    assert len(data.runtime.runs("sync")) == 1


async def test_a_set_with_a_warmup_is_ready_only_when_warm(data: DataHarness) -> None:
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.start_set(partitions=2, warmup={"paths": ["train"], "threads": 8})
    await data.expect_condition("Warmed", "Warming")
    await data.expect_phase("PartialReady")
    [spec] = data.runtime.runs("warmup")
    assert spec.warmup
    assert (spec.partitions, spec.warmup.paths, spec.warmup.threads) == (2, ["train"], 8)
    await data.runtime.end(spec, RunPhase.SUCCEEDED)
    await data.drive()
    ready = await data.expect_phase("Ready")
    assert ready["jobsName"]["warmupJobName"] == spec.run_id
    [warmed] = [e.data for e in data.published if isinstance(e.data, SampleSetWarmed)]
    assert (warmed.files, warmed.cached_percent) == (10, 100.0)
    assert data.facts().index("SampleSetWarmed") < data.facts().index("SampleSetReady")


async def test_a_partition_that_finds_no_node_holds_up_no_other(data: DataHarness) -> None:
    data.kubernetes.unready.add("digits-runtime-1")
    uid = await data.start_set(partitions=3)
    await data.runtime.report(uid, 1)
    await data.drive()
    assert (await data.status(SET))["runtimeStatus"]["runtimeReady"] == "2/3"
    assert await data.labels() == {"node-0": "0", "node-2": "2"}


async def test_no_other_pod_is_there_before_the_first_has_mounted(data: DataHarness) -> None:
    data.kubernetes.unready.add("digits-runtime-0")
    await data.start_set(partitions=3)
    assert [pod["metadata"]["name"] for pod in await data.objects(ports.PODS)] == ["digits-runtime-0"]
    data.kubernetes.unready.clear()
    await data.drive()
    assert len(await data.objects(ports.PODS)) == 3
    with pytest.raises(LookupError):
        await data.condition(SET, "Scaling")


async def test_a_lost_partition_degrades_the_set_until_it_is_back(data: DataHarness) -> None:
    uid = await data.ready_set(partitions=2)
    for _ in range(2):
        data.kubernetes.unready.add("digits-runtime-1")
        await data.drive()
        degraded = await data.expect_phase("PartialReady")
        assert degraded["runtimeStatus"]["runtimeReady"] == "1/2"
        data.kubernetes.unready.clear()
        await data.drive()
        await data.expect_phase("Ready")
    ids = [event.id.removeprefix(f"{uid}/SampleSet") for event in data.published]
    assert ids[-5:] == ["Ready/0", "Degraded/0", "Ready/1", "Degraded/1", "Ready/2"]


async def test_a_mount_that_the_agent_reports_lost_degrades_the_set(data: DataHarness) -> None:
    uid = await data.ready_set()
    await data.runtime.report(uid, 1, mounted=False, message="transport endpoint is not connected")
    await data.drive()
    await data.expect_phase("PartialReady")
    assert "transport endpoint" in (await data.expect_condition("Ready", "PartitionsNotReady"))["message"]


async def test_partitions_are_added(data: DataHarness) -> None:
    uid = await data.ready_set()
    await data.patch(SET, {"spec": {"partitions": 3}})
    await data.drain_queue()
    await data.expect_phase("PartialReady")
    await data.runtime.report(uid, 3)
    await data.drive()
    await data.expect_phase("Ready")
    assert await data.labels() == {"node-0": "0", "node-1": "1", "node-2": "2"}
    assert len(data.runtime.runs("sync")) == 1


async def test_a_set_that_warms_itself_is_warmed_again_on_added_partitions(data: DataHarness) -> None:
    uid = await data.ready_set(warmup={})
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.patch(SET, {"spec": {"partitions": 2}})
    await data.runtime.report(uid, 2)
    await data.drive()
    [first, again] = data.runtime.runs("warmup")
    assert (first.partitions, again.partitions) == (1, 2)
    await data.expect_phase("PartialReady")
    await data.expect_condition("Warmed", "Warming")
    await data.restart()
    await data.runtime.end(again, RunPhase.SUCCEEDED)
    await data.drive()
    ready = await data.expect_phase("Ready")
    assert ready["jobsName"]["warmupNodes"] == ["node-0", "node-1"]
    await data.expect_condition("Warmed", "Warmed")
    assert len(data.runtime.runs("warmup")) == 2


async def test_a_warmup_with_the_options_of_an_earlier_one_is_a_run_of_its_own(data: DataHarness) -> None:
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.start_set(warmup={"threads": 1})
    for threads in (2, 1, 2):
        await data.patch(SET, {"spec": {"warmup": {"threads": threads}}})
        await data.drive()
    runs = data.runtime.runs("warmup")
    assert [run.warmup.threads for run in runs if run.warmup] == [1, 2, 1, 2]
    assert len({run.run_id for run in runs}) == 4
    await data.restart()
    await data.drive()
    assert data.runtime.runs("warmup") == runs


async def test_a_warmup_with_other_options_leaves_no_other_behind_when_the_bus_was_away(
    data: DataHarness,
) -> None:
    """Also after a restart; and the set does not ask the bus again and again."""
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    await data.start_set(warmup={"threads": 1})
    [first] = data.runtime.runs("warmup")
    with data.bus_down():
        await data.patch(SET, {"spec": {"warmup": {"threads": 2}}})
        await data.drive()
        await data.wait(3)
    await data.restart()
    await data.wait(20)
    assert [run.warmup.threads for run in data.runtime.runs("warmup") if run.warmup] == [1, 2]
    assert not [key for key in await data.records() if first.run_id in key]


async def test_a_warmup_on_nodes_that_were_warm_before_is_not_taken_for_the_one_before(
    data: DataHarness,
) -> None:
    """The bus was away when the first run was to be forgotten: that it has succeeded is still there."""
    uid = await data.ready_set(warmup={})
    data.runtime.script = {"warmup": RunPhase.RUNNING}
    with data.bus_down():
        await data.patch(SET, {"spec": {"partitions": 2}})
        await data.drive()
    await data.runtime.report(uid, 2)
    await data.wait(20)
    await data.expect_condition("Warmed", "Warming")
    await data.patch(SET, {"spec": {"partitions": 1}})
    await data.wait(60)
    status = await data.expect_phase("PartialReady")
    assert status["jobsName"]["warmupNodes"] == ["node-0"]
    await data.expect_condition("Warmed", "Warming")
    assert [run.partitions for run in data.runtime.runs("warmup")] == [1, 2, 1]


async def test_what_is_given_up_for_one_scaling_is_not_given_up_for_the_next(data: DataHarness) -> None:
    uid = await data.ready_set(partitions=3)
    await data.runtime.report(uid, 3, staged_bytes=1 << 20)
    await data.patch(SET, {"spec": {"partitions": 2}})
    await data.drive()
    waits = await data.expect_condition("Scaling", "StagedWrites")
    assert waits["message"].endswith("discard-staged-writes=node-2")
    await data.patch(SET, {"metadata": {"annotations": {DISCARD_ANNOTATION: "node-1,node-2"}}})
    await data.wait(2)
    await data.expect_condition("Scaling", "Scaled")
    assert DISCARD_ANNOTATION not in annotations_of(await data.get(SET))
    await data.patch(SET, {"spec": {"partitions": 1}})
    await data.drive()
    waits = await data.expect_condition("Scaling", "StagedWrites")
    assert waits["message"].endswith("discard-staged-writes=node-1")


async def test_removed_partitions_are_emptied_and_unlabelled(data: DataHarness) -> None:
    await data.ready_set(partitions=3)
    await data.patch(SET, {"spec": {"partitions": 1}})
    await data.drive()
    assert data.phases[-2:] == ["PartialReady", "Ready"]
    [clear] = data.runtime.runs("clear")
    assert clear.clear
    assert (clear.partitions, clear.clear.partitions) == (3, [1, 2])
    assert await data.labels() == {"node-0": "0"}
    node = await data.get(Key("", "node-1"), ports.NODES)
    assert not {set_label("digits"), home_label("default", "digits")} & set(node["metadata"]["labels"])
    assert not any(clear.run_id in key for key in await data.records())


async def test_a_deleted_set_leaves_nothing_behind(data: DataHarness) -> None:
    await data.ready_set(partitions=2)
    await data.delete(SET)
    await data.drive()
    assert not await data.exists(SET)
    for resource in (
        ports.PERSISTENT_VOLUMES,
        ports.PERSISTENT_VOLUME_CLAIMS,
        ports.SERVICES,
        ports.STATEFUL_SETS,
    ):
        assert await data.objects(resource) == []
    assert await data.names(ports.SECRETS) == ["digits"]
    assert [node["metadata"].get("labels") or {} for node in await data.objects(ports.NODES)] == [{}] * 3
    assert await data.records() == []
    assert data.facts()[-1] == "SampleSetDeleted"
    [clear] = data.runtime.runs("clear")
    assert clear.clear
    assert clear.clear.partitions == [0, 1]


def make_user(name: str) -> Object:
    """A pod that uses the set's claim."""
    volume = {"name": "digits", "persistentVolumeClaim": {"claimName": "digits"}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"volumes": [volume]}}


async def test_a_set_in_use_is_not_taken_away(data: DataHarness) -> None:
    await data.ready_set()
    await data.create(make_user("train-worker-0"), ports.PODS)
    await data.delete(SET)
    await data.drive()
    assert "train-worker-0" in (await data.expect_condition("Ready", "InUse"))["message"]
    assert await data.exists(RUNTIME, ports.STATEFUL_SETS)
    # Longer than the agents get to empty their caches: that time begins when the pod has gone.
    await data.wait(120)
    assert data.runtime.runs("clear") == []
    await data.delete(Key("default", "train-worker-0"), ports.PODS)
    await data.wait(12)
    assert len(data.runtime.runs("clear")) == 1
    assert not await data.exists(SET)


async def test_a_pod_that_can_never_start_brings_no_runtime_back(data: DataHarness) -> None:
    """Its claim is going, so no node takes it; one that a node has taken needs the mount."""
    await data.ready_set()
    held = {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}
    await data.patch(SET, held, ports.PERSISTENT_VOLUME_CLAIMS)
    await data.delete(SET)
    await data.drive()
    assert not await data.exists(RUNTIME, ports.STATEFUL_SETS)
    assert (await data.get(SET, ports.PERSISTENT_VOLUME_CLAIMS))["metadata"]["deletionTimestamp"]
    await data.create(make_user("late"), ports.PODS)
    await data.wait(6)
    await data.expect_condition("Free", "Terminating")
    assert not await data.exists(RUNTIME, ports.STATEFUL_SETS)
    scheduled = make_user("early")
    scheduled["spec"]["nodeName"] = "node-0"
    await data.create(scheduled, ports.PODS)
    await data.wait(6)
    assert (await data.expect_condition("Ready", "InUse"))[
        "message"
    ] == "waits for pods that use the data: early"
    assert await data.exists(RUNTIME, ports.STATEFUL_SETS)


async def test_reports_about_a_set_that_waits_do_not_list_the_pods_each_time(
    data: DataHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = await data.ready_set()
    await data.create(make_user("a"), ports.PODS)
    await data.delete(SET)
    await data.drive()
    lists = list[str]()
    real = data.cluster.list

    async def counted(resource: Resource, *args: Any, **options: Any) -> Objects:
        lists.append(resource.kind)
        return await real(resource, *args, **options)

    monkeypatch.setattr(data.cluster, "list", counted)

    async def report(times: int) -> int:
        """How often pods were listed."""
        lists.clear()
        for n in range(times):
            await data.runtime.report(uid, 0, staged_bytes=n)
            await data.drain_queue()
        return lists.count("Pod")

    assert await report(4) == 0
    await data.advance(5)
    assert lists.count("Pod") == 1
    assert await report(4) == 0
    await data.expect_condition("Ready", "InUse")


async def test_two_sets_of_one_name_in_two_namespaces_do_not_interfere(data: DataHarness) -> None:
    await data.ready_set()
    await data.create(make_secret(namespace="other"), ports.SECRETS)
    await data.create(make_sample_set(namespace="other"))
    await data.drive()
    await data.expect_phase("Ready", Key("other", "digits"))
    assert await data.names(ports.PERSISTENT_VOLUMES) == ["default.digits", "other.digits"]
    node = (await data.get(Key("", "node-0"), ports.NODES))["metadata"]["labels"]
    assert node[LABEL] == node[node_label("other", "digits")] == "0"
    await data.delete(SET)
    await data.drive()
    assert not await data.exists(SET)
    node = (await data.get(Key("", "node-0"), ports.NODES))["metadata"]["labels"]
    # Only the other set's pass gives it the public label, which this set's deletion has freed.
    assert node == {
        node_label("other", "digits"): "0",
        home_label("other", "digits"): "0",
        set_label("digits"): "digits-runtime-0",
    }


async def test_a_runtime_that_was_deleted_by_hand_comes_back_until_all_is_uploaded(data: DataHarness) -> None:
    uid = await data.ready_set()
    await data.runtime.report(uid, 1, staged_bytes=1 << 20)
    await data.drive()
    await data.delete(SET)
    await data.delete(RUNTIME, ports.STATEFUL_SETS)
    await data.wait(6)
    assert await data.exists(RUNTIME, ports.STATEFUL_SETS)
    await data.expect_condition("Ready", "StagedWrites")
    await data.runtime.report(uid, 1)
    await data.wait(10)
    assert not await data.exists(SET)


WRITEBACK = {"csi": {"driver": "juicefs", "juiceFSMountOptions": {"writeback": True}}}


async def test_a_set_goes_when_its_agents_have_said_just_now_that_all_is_uploaded(data: DataHarness) -> None:
    uid = await data.ready_set(**WRITEBACK)
    # Nobody hears what pods write in the meantime.
    await data.advance(61)
    await data.delete(SET)
    await data.wait(130)
    assert await data.exists(RUNTIME, ports.STATEFUL_SETS)
    assert data.runtime.runs("clear") == []
    ready = await data.expect_condition("Ready", "StagedWrites")
    assert "its agent has not reported lately on node node-0; to lose it:" in ready["message"]
    await data.runtime.report(uid, 1)
    await data.wait(10)
    # Agents that end report no more, and that keeps nothing.
    assert not await data.exists(SET)


async def test_what_was_measured_before_the_last_user_had_gone_lets_no_set_go(data: DataHarness) -> None:
    """It may have written in the last moment."""
    uid = await data.ready_set(**WRITEBACK)
    await data.create(make_user("train-worker-0"), ports.PODS)
    await data.delete(SET)
    await data.drive()
    await data.expect_condition("Ready", "InUse")
    await data.runtime.report(uid, 1)
    await data.drive()
    await data.delete(Key("default", "train-worker-0"), ports.PODS)
    await data.wait(12)
    ready = await data.expect_condition("Ready", "StagedWrites")
    assert "not reported since the last user has gone on node node-0; to lose it:" in ready["message"]
    await data.wait(20)
    await data.runtime.report(uid, 1, staged_age=20)
    await data.wait(6)
    await data.expect_condition("Ready", "StagedWrites")
    await data.runtime.report(uid, 1, staged_age=2)
    await data.wait(10)
    assert not await data.exists(SET)


@pytest.mark.parametrize("meanwhile", ["another replica looks", "no look goes well", "nobody looks"])
async def test_a_set_that_was_out_of_sight_may_have_been_used(
    data: DataHarness, meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of just before the first look that follows is not of what the last user has written."""
    uid = await data.ready_set(**WRITEBACK)
    await data.delete(SET)
    await data.drive()
    await data.wait(20)
    if meanwhile == "another replica looks":
        for reconciler, _ in data.replica.operator._reconcilers:
            reconciler.keep(lambda _: False)
    elif meanwhile == "no look goes well":
        with monkeypatch.context() as patched:
            patched.setattr(data.cluster, "list", AsyncMock(side_effect=Retry("ServerBusy", "later")))
            await data.advance(6)
    else:
        await data.clock.advance(60)
    await data.runtime.report(uid, 1, staged_age=1)
    await data.advance(1)
    await data.wait(6)
    ready = await data.expect_condition("Ready", "StagedWrites")
    assert "not reported since the last user has gone" in ready["message"]
    await data.wait(14)
    await data.runtime.report(uid, 1)
    await data.wait(12)
    assert not await data.exists(SET)


async def test_a_clock_that_is_set_back_keeps_no_set_from_going(data: DataHarness) -> None:
    uid = await data.ready_set(**WRITEBACK)
    await data.delete(SET)
    await data.drive()
    data.clock.set_wall(-3600)
    await data.wait(20)
    await data.runtime.report(uid, 1)
    await data.wait(12)
    assert not await data.exists(SET)


async def test_a_set_outlives_a_bus_that_has_lost_all_reports_and_a_start(data: DataHarness) -> None:
    uid = await data.ready_set(**WRITEBACK)
    await data.runtime.report(uid, 1, staged_bytes=1 << 20)
    await data.drive()
    await data.delete(SET)
    await data.drive()
    await data.bus.key_value(NODES_BUCKET).delete(f"{uid}.0")
    await data.restart()
    await data.wait(130)
    ready = await data.expect_condition("Ready", "StagedWrites")
    assert "no agent has reported on node node-0; to lose it:" in ready["message"]
    assert data.runtime.runs("clear") == []
    await data.runtime.report(uid, 1)
    await data.wait(10)
    assert not await data.exists(SET)


async def test_a_writeback_set_that_never_came_up_goes_at_once(data: DataHarness) -> None:
    data.kubernetes.unready = {"digits-runtime-0"}
    await data.start_set(**WRITEBACK)
    await data.expect_phase("Bound")
    await data.delete(SET)
    await data.wait(6)
    assert not await data.exists(SET)


async def test_users_of_a_deleted_set_get_its_runtime_back(data: DataHarness) -> None:
    await data.ready_set()
    await data.create(make_user("train-worker-0"), ports.PODS)
    await data.delete(SET)
    await data.drive()
    await data.delete(RUNTIME, ports.STATEFUL_SETS)
    await data.delete(Key("default", "digits-runtime-0"), ports.PODS)
    await data.wait(6)
    assert await data.exists(RUNTIME, ports.STATEFUL_SETS)
    await data.expect_condition("Ready", "InUse")
    await data.expect_condition("Mounted", "Mounted")
    await data.delete(Key("default", "train-worker-0"), ports.PODS)
    await data.wait(12)
    assert not await data.exists(SET)
