"""Both reconcilers over memory adapters: a fake cluster and agents that answer through the KeyValue port."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from dataset_controller.domain.samplejob.policies import deletion
from paddlewheel.contracts.dataset_names import node_label, set_label
from paddlewheel.contracts.generated.bus_v1 import RebuildReport
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.subjects import command_subject
from paddlewheel.contracts.wire import from_json
from paddlewheel.kube import ports
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set, make_secret
from paddlewheel.testkit.wait import eventually

SET = Key("default", "digits")
JOB = Key("default", "job")
LABEL = node_label("default", "digits")
FACTS = ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]


async def start_set(stand: Any, **spec: Any) -> str:
    await stand.cluster.create(ports.SECRETS, make_secret())
    created = await stand.cluster.create(ports.SAMPLE_SETS, make_sample_set(**spec))
    return str(created["metadata"]["uid"])


async def labels(stand: Any) -> dict[str, str]:
    nodes = await stand.cluster.list(ports.NODES)
    found = {n["metadata"]["name"]: n["metadata"].get("labels", {}).get(LABEL) for n in nodes}
    return {name: value for name, value in found.items() if value is not None}


async def test_a_set_walks_the_whole_path(stand: Any) -> None:
    await start_set(stand, partitions=2)
    ready = (await stand.set_phase("Ready"))["status"]
    path = ["Bound", "Mount", "Syncing", "Mount", "PartialReady", "Ready"]
    await eventually(lambda: stand.phases == path, within=2)
    assert ready["runtimeStatus"] == {"specReplicas": 2, "readyReplicas": 2, "runtimeReady": "2/2"}
    assert ready["cacheStatus"] == {
        "totalSize": "20 MiB",
        "totalFiles": "10",
        "cachedSize": "20 MiB",
        "diskSize": "2.0 GiB",
        "diskUsed": "246 MiB",
        "diskAvail": "1.7 GiB",
        "diskUsageRate": "12.3%",
        "errorMassage": "",
    }
    assert stand.facts() == ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]
    assert await labels(stand) == {"node-0": "0", "node-1": "1"}


async def test_the_ready_fact_carries_the_figures(stand: Any) -> None:
    uid = await start_set(stand)
    await stand.set_phase("Ready")
    event = stand.bus.events("PW_DATASETS")[-1]
    assert event.id == f"{uid}/SampleSetReady/0"
    assert event.subject == f"pw.evt.datasets.sampleset.ready.v1.default.{uid}"
    assert (event.data.partitions, event.data.figures.total_files) == (1, 10)
    assert event.data.figures.total_bytes == 20 << 20


async def test_children_of_a_set(stand: Any) -> None:
    uid = await start_set(stand)
    await stand.set_phase("Ready")
    volume = await stand.get(ports.PERSISTENT_VOLUMES, "default-digits", "")
    claim = await stand.get(ports.PERSISTENT_VOLUME_CLAIMS, "digits")
    service = await stand.get(ports.SERVICES, "digits-runtime-service")
    stateful_set = await stand.get(ports.STATEFUL_SETS, "digits-runtime")
    for obj in (volume, claim, service, stateful_set):
        assert obj["metadata"]["labels"][set_label("digits")] == "true"
        assert obj["metadata"]["annotations"]["CreatedBy"] == "paddle-operator"
    for obj in (claim, service, stateful_set):
        assert obj["metadata"]["ownerReferences"][0]["uid"] == uid
    assert volume["spec"]["hostPath"]["path"] == f"/var/lib/paddlewheel/mnt/{uid}"


async def test_a_csi_driver_is_used_where_there_is_one(stand: Any) -> None:
    await stand.cluster.create(ports.CSI_DRIVERS, {"metadata": {"name": "csi.juicefs.com"}})
    options = {"juiceFSMountOptions": {"writeback": True, "attr-cache": 7200, "open-cache": 0}}
    await start_set(stand, csi={"driver": "juicefs", **options})
    await stand.set_phase("Ready")
    csi = (await stand.get(ports.PERSISTENT_VOLUMES, "default-digits", ""))["spec"]["csi"]
    assert (csi["driver"], csi["volumeHandle"]) == ("csi.juicefs.com", "default-digits")
    assert csi["nodePublishSecretRef"] == {"name": "digits", "namespace": "default"}
    assert csi["volumeAttributes"]["mountOptions"].startswith("attr-cache=7200,cache-dir=")
    assert csi["volumeAttributes"]["mountOptions"].endswith(",writeback")


async def test_without_sync_nothing_is_copied(stand: Any) -> None:
    uid = await start_set(stand, noSync=True, source=None)
    await stand.set_phase("Mount")
    await stand.runtime.report(uid, 1)
    await stand.set_phase("Ready")
    await eventually(lambda: stand.phases == ["Bound", "Mount", "PartialReady", "Ready"], within=2)
    assert stand.runtime.seen == []
    assert "SampleSetSynced" not in stand.facts()


async def test_nothing_is_written_when_nothing_changed(stand: Any) -> None:
    uid = await start_set(stand)
    await stand.set_phase("Ready")
    await stand.runtime.report(uid, 1)
    before = stand.cluster.writes.copy()
    for i in range(5):
        await stand.runtime.report(uid, 1)
        pod = {"metadata": {"annotations": {"seen": str(i)}}}
        await stand.cluster.patch(ports.PODS, Key("default", "digits-runtime-0"), pod)
    # The first change that means something; all that came before it has been looked at by then.
    await stand.runtime.report(uid, 1, mounted=False)
    await stand.set_phase("PartialReady")
    after = stand.cluster.writes - before
    assert after["patch-status", "samplesets"] == 1
    assert {plural for _, plural in after} <= {"samplesets", "pods", "events", "nodes"}


async def test_writes_of_a_whole_path_are_few(stand: Any) -> None:
    await start_set(stand)
    await stand.set_phase("Ready")
    # Accepted, Bound, no pod yet, Mount, Syncing, running, Mount, PartialReady, Ready, and figures.
    assert stand.cluster.writes["patch-status", "samplesets"] <= 11
    assert stand.cluster.writes["create", "statefulsets"] == 1


async def test_a_missing_then_wrong_then_right_secret(stand: Any) -> None:
    await stand.cluster.create(ports.SAMPLE_SETS, make_sample_set())
    missing = await stand.condition("Accepted", "ErrorSecretNotExist")
    assert "default/digits does not exist" in missing["message"]
    await stand.cluster.create(ports.SECRETS, make_secret("other"))
    wrong = await stand.condition("Accepted", "ErrorSecretNotExist")
    assert wrong["message"] == missing["message"]
    await stand.cluster.create(
        ports.SECRETS, make_secret(values={"storage": "redis", "metaurl": "redis://r/0"})
    )
    invalid = await stand.condition("Accepted", "SecretInvalid")
    assert "lacks name and bucket" in invalid["message"]
    assert await stand.cluster.list(ports.PERSISTENT_VOLUMES) == []
    await stand.cluster.patch(ports.SECRETS, SET, {"data": make_secret()["data"]})
    await stand.set_phase("Ready")
    await eventually(lambda: stand.condition("Accepted", "Accepted"))
    await stand.told(("Warning", "ErrorSecretNotExist"), ("Warning", "SecretInvalid"))


async def test_a_secret_of_another_type_is_refused(stand: Any) -> None:
    await stand.cluster.create(ports.SECRETS, make_secret(kind="kubernetes.io/basic-auth"))
    await stand.cluster.create(ports.SAMPLE_SETS, make_sample_set())
    assert "type Opaque" in (await stand.condition("Accepted", "SecretInvalid"))["message"]


async def test_a_foreign_service_is_left_alone(stand: Any) -> None:
    foreign = {"metadata": {"name": "digits-runtime-service", "namespace": "default"}, "spec": {"ports": []}}
    before = await stand.cluster.create(ports.SERVICES, foreign)
    await start_set(stand)
    told = await stand.condition("Reconciled", "ErrorServiceAlreadyExist")
    assert "delete it or rename the set" in told["message"]
    assert await stand.get(ports.SERVICES, "digits-runtime-service") == before


async def test_credentials_never_reach_the_bus(stand: Any) -> None:
    uri = "s3://URIKEY:URI%2FSECRET@bucket.s3.example.com/digits"
    await start_set(stand, source={"uri": uri})
    await stand.set_phase("Ready")
    [spec] = stand.runtime.runs("sync")
    assert (spec.sync.source, spec.sync.secret) == ("s3://bucket.s3.example.com/digits", "source")
    secret = await stand.get(ports.SECRETS, "digits-runtime")
    values = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert (values["source.access-key"], values["source.secret-key"]) == ("URIKEY", "URI/SECRET")
    assert values["engine.metaurl"] == "redis://:pw@redis:6379/0"
    said = b"".join(m.data for m in stand.bus.stored("PW_DATASETS")).decode() + spec.model_dump_json()
    assert not any(word in said for word in ("URIKEY", "URI/SECRET", "pw@redis", "AK", "SK"))


async def test_a_failed_sync_waits_for_a_change(stand: Any) -> None:
    stand.runtime.script = {"sync": RunPhase.FAILED}
    await start_set(stand)
    failed = await stand.set_phase("SyncFailed")
    await stand.told(("Warning", "ErrorDoSyncJob"))
    first = failed["status"]["jobsName"]["syncJobName"]
    await stand.cluster.patch(ports.SAMPLE_SETS, SET, {"metadata": {"annotations": {"touched": "1"}}})
    assert (await stand.condition("Synced", "ScriptedFailure"))["message"] == "the script says so"
    stand.runtime.script = {}
    await stand.cluster.patch(ports.SAMPLE_SETS, SET, {"spec": {"source": {"uri": "s3://other/digits"}}})
    ready = await stand.set_phase("Ready")
    assert ready["status"]["jobsName"]["syncJobName"] != first
    assert [s.sync.source for s in stand.runtime.runs("sync")][-1] == "s3://other/digits"
    assert stand.phases[3:5] == ["SyncFailed", "Mount"]
    assert not any(first in key for key in await stand.records())


async def test_a_failed_sync_is_tried_again_with_a_mended_secret(stand: Any) -> None:
    stand.runtime.script = {"sync": RunPhase.FAILED}
    await start_set(stand)
    await stand.set_phase("SyncFailed")
    stand.runtime.script = {}
    await stand.cluster.patch(ports.SECRETS, SET, {"data": {"secret-key": "bmV3"}})
    await stand.set_phase("Ready")


async def test_a_failed_sync_is_left_with_no_sync(stand: Any) -> None:
    stand.runtime.script = {"sync": RunPhase.FAILED}
    await start_set(stand)
    await stand.set_phase("SyncFailed")
    await stand.cluster.patch(ports.SAMPLE_SETS, SET, {"spec": {"noSync": True}})
    await stand.set_phase("Ready")
    assert len(stand.runtime.runs("sync")) == 1


async def test_a_set_with_a_warmup_is_ready_only_when_warm(stand: Any) -> None:
    stand.runtime.script = {"warmup": RunPhase.RUNNING}
    await start_set(stand, partitions=2, warmup={"paths": ["train"], "threads": 8})
    await stand.condition("Warmed", "Warming")
    assert (await stand.sample_set())["status"]["phase"] == "PartialReady"
    [spec] = stand.runtime.runs("warmup")
    assert (spec.partitions, spec.warmup.paths, spec.warmup.threads) == (2, ["train"], 8)
    await stand.runtime.end(spec, RunPhase.SUCCEEDED)
    ready = await stand.set_phase("Ready")
    assert ready["status"]["jobsName"]["warmupJobName"] == spec.run_id
    warmed = next(e.data for e in stand.bus.events("PW_DATASETS") if "Warmed" in e.type)
    assert (warmed.files, warmed.cached_percent) == (10, 100.0)
    assert stand.facts().index("SampleSetWarmed") < stand.facts().index("SampleSetReady")


async def test_a_lost_partition_degrades_the_set_until_it_is_back(stand: Any) -> None:
    await start_set(stand, partitions=2)
    await stand.set_phase("Ready")
    stand.kubernetes.unready.add("digits-runtime-1")
    await stand.kubernetes.settle()
    degraded = await stand.set_phase("PartialReady")
    assert degraded["status"]["runtimeStatus"]["runtimeReady"] == "1/2"
    stand.kubernetes.unready.clear()
    await stand.kubernetes.settle()
    await stand.set_phase("Ready")
    assert stand.facts()[-3:] == ["SampleSetReady", "SampleSetDegraded", "SampleSetReady"]
    assert len({e.id for e in stand.bus.events("PW_DATASETS")}) == len(stand.facts())


async def test_a_mount_that_the_agent_reports_lost_degrades_the_set(stand: Any) -> None:
    uid = await start_set(stand)
    await stand.set_phase("Ready")
    await stand.runtime.report(uid, 1, mounted=False, message="transport endpoint is not connected")
    await stand.set_phase("PartialReady")
    assert "transport endpoint" in (await stand.condition("Ready", "PartitionsNotReady"))["message"]


async def test_partitions_are_added(stand: Any) -> None:
    uid = await start_set(stand)
    await stand.set_phase("Ready")
    await stand.cluster.patch(ports.SAMPLE_SETS, SET, {"spec": {"partitions": 3}})
    await stand.set_phase("PartialReady")
    await stand.runtime.report(uid, 3)
    await stand.set_phase("Ready")
    assert await labels(stand) == {"node-0": "0", "node-1": "1", "node-2": "2"}
    assert len(stand.runtime.runs("sync")) == 1


async def test_removed_partitions_are_emptied_and_unlabelled(stand: Any) -> None:
    await start_set(stand, partitions=3)
    await stand.set_phase("Ready")
    await stand.cluster.patch(ports.SAMPLE_SETS, SET, {"spec": {"partitions": 1}})
    await stand.set_phase("PartialReady")
    await stand.set_phase("Ready")
    [clear] = stand.runtime.runs("clear")
    assert (clear.partitions, clear.clear.partitions) == (3, [1, 2])
    assert await labels(stand) == {"node-0": "0"}
    node = await stand.get(ports.NODES, "node-1", "")
    assert set_label("digits") not in node["metadata"]["labels"]
    assert not any(clear.run_id in key for key in await stand.records())


async def test_a_deleted_set_leaves_nothing_behind(stand: Any) -> None:
    await start_set(stand, partitions=2)
    await stand.set_phase("Ready")
    await stand.cluster.delete(ports.SAMPLE_SETS, SET)
    await stand.gone(ports.SAMPLE_SETS, "digits")
    for resource in (ports.PERSISTENT_VOLUMES, ports.PERSISTENT_VOLUME_CLAIMS, ports.SERVICES):
        assert await stand.cluster.list(resource) == []
    assert await stand.cluster.list(ports.STATEFUL_SETS) == []
    assert [s["metadata"]["name"] for s in await stand.cluster.list(ports.SECRETS)] == ["digits"]
    assert await labels(stand) == {}
    assert await stand.records() == []
    assert stand.facts()[-1] == "SampleSetDeleted"
    [clear] = stand.runtime.runs("clear")
    assert clear.clear.partitions == [0, 1]


async def test_a_set_in_use_is_not_taken_away(stand: Any) -> None:
    await start_set(stand)
    await stand.set_phase("Ready")
    volume = {"name": "digits", "persistentVolumeClaim": {"claimName": "digits"}}
    pod = {"metadata": {"name": "train-worker-0", "namespace": "default"}, "spec": {"volumes": [volume]}}
    await stand.cluster.create(ports.PODS, pod)
    await stand.cluster.delete(ports.SAMPLE_SETS, SET)
    assert "train-worker-0" in (await stand.condition("Ready", "InUse"))["message"]
    assert await stand.get(ports.STATEFUL_SETS, "digits-runtime")


async def test_without_the_bus_the_rest_goes_on_and_facts_come_later(quiet_stand: Any, serve: Any) -> None:
    stand = quiet_stand
    stand.bus.down = True
    async with serve():
        await start_set(stand)
        await stand.set_phase("Syncing")
    assert stand.facts() == []
    pending = (await stand.sample_set())["status"]["announcements"]
    assert [(a["fact"], a["announced"]) for a in pending] == [
        ("SampleSetBound", False),
        ("SampleSetMounted", False),
    ]
    stand.bus.down = False
    async with serve():
        await stand.set_phase("Ready")
    assert stand.facts() == ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]


async def test_a_restart_in_the_middle_repeats_nothing(quiet_stand: Any, serve: Any) -> None:
    stand = quiet_stand
    stand.runtime.script = {"sync": RunPhase.RUNNING}
    async with serve():
        await start_set(stand)
        await stand.set_phase("Syncing")
        await eventually(lambda: stand.runtime.runs("sync"))
    [spec] = stand.runtime.runs("sync")
    await stand.runtime.end(spec, RunPhase.SUCCEEDED)
    async with serve():
        await stand.set_phase("Ready")
    assert len(stand.runtime.runs("sync")) == 1
    assert stand.cluster.writes["create", "statefulsets"] == 1


async def test_two_sets_of_one_name_in_two_namespaces_do_not_meet(stand: Any) -> None:
    await start_set(stand)
    await stand.set_phase("Ready")
    await stand.cluster.create(ports.SECRETS, make_secret(namespace="other"))
    await stand.cluster.create(ports.SAMPLE_SETS, make_sample_set(namespace="other"))

    async def is_ready() -> bool:
        obj = await stand.get(ports.SAMPLE_SETS, "digits", "other")
        return bool(obj.get("status", {}).get("phase") == "Ready")

    await eventually(is_ready, within=5)
    assert {v["metadata"]["name"] for v in await stand.cluster.list(ports.PERSISTENT_VOLUMES)} == {
        "default-digits",
        "other-digits",
    }
    node = (await stand.get(ports.NODES, "node-0", ""))["metadata"]["labels"]
    assert node[LABEL] == node[node_label("other", "digits")] == "0"
    await stand.cluster.delete(ports.SAMPLE_SETS, SET)
    await stand.gone(ports.SAMPLE_SETS, "digits")
    node = (await stand.get(ports.NODES, "node-0", ""))["metadata"]["labels"]
    assert node == {node_label("other", "digits"): "0", set_label("digits"): "digits-runtime-0"}


async def test_a_warmup_job_runs_and_tells_its_progress(stand: Any) -> None:
    await start_set(stand)
    await stand.set_phase("Ready")
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job(warmupOptions={"strategyName": "random"}))
    status = (await stand.job_phase("Succeeded"))["status"]
    assert status["progress"] == {
        "filesDone": 10,
        "filesTotal": 10,
        "bytesDone": 20 << 20,
        "bytesTotal": 20 << 20,
        "cachedPercent": 100.0,
        "listed": True,
    }
    [spec] = stand.runtime.runs("warmup")
    assert (spec.run_id, spec.warmup.strategy) == (status["jobName"], "random")
    assert stand.facts()[-2:] == ["SampleJobStarted", "SampleJobSucceeded"]
    await stand.told(("Normal", "DoWarmupJobSuccessfully"))


async def test_a_job_waits_for_its_set(stand: Any) -> None:
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job())
    await stand.condition("Accepted", "ErrorSampleSetNotExist", ports.SAMPLE_JOBS, "job")
    await start_set(stand)
    await stand.job_phase("Succeeded")


async def test_a_sync_job_brings_its_own_keys_through_the_runtime_secret(stand: Any) -> None:
    stand.runtime.script = {"sync": RunPhase.SUCCEEDED}
    await start_set(stand)
    await stand.set_phase("Ready")
    stand.runtime.script = {"sync": RunPhase.RUNNING}
    options = {
        "source": "bos://bucket.example.com/train",
        "destination": "train",
        "threads": 32,
        "bwlimit": 400,
    }
    job = make_sample_job(
        type="sync", secretRef={"name": "source"}, syncOptions={**options, "delete-dst": True}
    )
    await stand.cluster.create(ports.SAMPLE_JOBS, job)
    await stand.condition("Accepted", "ErrorSecretNotExist", ports.SAMPLE_JOBS, "job")
    await stand.cluster.create(
        ports.SECRETS, make_secret("source", values={"access-key": "JOBAK", "secret-key": "JOBSK"})
    )
    running = await stand.job_phase("Running")
    spec = stand.runtime.runs("sync")[-1]
    assert spec.sync.secret == f"job-{running['status']['jobName']}"
    assert (spec.sync.destination, spec.sync.threads, spec.sync.bandwidth_limit) == ("train", 32, 400)
    assert spec.sync.delete_dst
    entry = f"{spec.sync.secret}.access-key"

    async def handed_over() -> bool:
        data = (await stand.get(ports.SECRETS, "digits-runtime"))["data"]
        return base64.b64decode(data.get(entry, "")) == b"JOBAK"

    await eventually(handed_over, within=5)
    await stand.runtime.end(spec, RunPhase.SUCCEEDED)
    await stand.job_phase("Succeeded")

    async def taken_back() -> bool:
        return entry not in (await stand.get(ports.SECRETS, "digits-runtime"))["data"]

    await eventually(taken_back, within=5)


async def test_a_failed_job_begins_anew_with_other_options(stand: Any) -> None:
    await start_set(stand)
    await stand.set_phase("Ready")
    stand.runtime.script = {"warmup": RunPhase.FAILED}
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job())
    first = (await stand.job_phase("Failed"))["status"]
    told = await stand.condition("Complete", "ScriptedFailure", ports.SAMPLE_JOBS, "job")
    assert told["message"] == "the script says so"
    stand.runtime.script = {}
    await stand.cluster.patch(ports.SAMPLE_JOBS, JOB, {"spec": {"warmupOptions": {"threads": 7}}})
    second = (await stand.job_phase("Succeeded"))["status"]
    assert first["jobName"] != second["jobName"]
    assert stand.facts()[-4:] == [
        "SampleJobStarted",
        "SampleJobFailed",
        "SampleJobStarted",
        "SampleJobSucceeded",
    ]


async def test_an_edit_after_success_changes_nothing_but_is_answered(stand: Any) -> None:
    await start_set(stand)
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job())
    await stand.job_phase("Succeeded")
    await stand.cluster.patch(ports.SAMPLE_JOBS, JOB, {"spec": {"warmupOptions": {"threads": 7}}})
    await stand.told(("Warning", "EditsIgnored"))
    assert len(stand.runtime.runs("warmup")) == 1


async def test_terminate_cancels_what_runs_and_then_begins(stand: Any) -> None:
    stand.runtime.script = {"warmup": RunPhase.RUNNING}
    await start_set(stand)
    await stand.set_phase("Ready")
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job("slow"))
    await stand.job_phase("Running", "slow")
    options: Any = {"type": "rmr", "terminate": True, "rmrOptions": {"paths": ["old", "/tmp-files"]}}
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job("rmr", **options))
    await stand.job_phase("Succeeded", "rmr")
    await stand.job_phase("Failed", "slow")
    await stand.condition("Complete", "Cancelled", ports.SAMPLE_JOBS, "slow")
    [spec] = stand.runtime.runs("remove")
    assert spec.remove.paths == ["old", "tmp-files"]


async def test_deleting_a_job_ends_its_run_and_no_other(stand: Any) -> None:
    stand.runtime.script = {"warmup": RunPhase.RUNNING}
    await start_set(stand)
    await stand.set_phase("Ready")
    for name in ("job", "other"):
        await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job(name))
        await stand.job_phase("Running", name)
    doomed = (await stand.get(ports.SAMPLE_JOBS, "job"))["status"]["jobName"]
    await stand.cluster.delete(ports.SAMPLE_JOBS, JOB)
    await stand.gone(ports.SAMPLE_JOBS, "job")
    assert not any(doomed in key for key in await stand.records())
    assert (await stand.get(ports.SAMPLE_JOBS, "other"))["status"]["phase"] == "Running"


async def test_a_job_deleted_while_the_bus_is_away_goes_once_its_facts_are_told(stand: Any) -> None:
    await start_set(stand)
    await stand.set_phase("Ready")
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job())
    await stand.job_phase("Succeeded")
    stand.bus.down = True
    await stand.cluster.delete(ports.SAMPLE_JOBS, JOB)
    await eventually(lambda: is_announced_in(stand, "SampleJobDeleted"))
    stand.bus.down = False
    await stand.gone(ports.SAMPLE_JOBS, "job")
    assert stand.facts()[-2:] == ["SampleJobSucceeded", "SampleJobDeleted"]


async def is_announced_in(stand: Any, fact: str) -> bool:
    told = (await stand.get(ports.SAMPLE_JOBS, "job"))["status"]["announcements"]
    return any(a["fact"] == fact and not a["announced"] for a in told)


async def test_a_job_deleted_while_the_bus_is_away_for_too_long_goes_without(
    stand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "BUS_SECONDS", 0.5)
    await start_set(stand)
    await stand.set_phase("Ready")
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job())
    await stand.job_phase("Succeeded")
    stand.bus.down = True
    await stand.cluster.delete(ports.SAMPLE_JOBS, JOB)
    await stand.gone(ports.SAMPLE_JOBS, "job")
    assert stand.facts()[-1] == "SampleJobSucceeded"


async def test_facts_of_a_lost_stream_come_back_by_themselves_in_order(stand: Any) -> None:
    await start_set(stand)
    await stand.set_phase("Ready")
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job())
    await stand.job_phase("Succeeded")
    before = [event.id for event in stand.bus.events("PW_DATASETS")]
    stand.bus.lose_facts("PW_DATASETS")
    await eventually(lambda: len(stand.facts()) == len(before), within=20)
    assert sorted(event.id for event in stand.bus.events("PW_DATASETS")) == sorted(before)
    assert stand.facts() == [*FACTS, "SampleJobStarted", "SampleJobSucceeded"]


async def test_the_command_rebuild_brings_back_what_is_missing(stand: Any) -> None:
    await start_set(stand)
    await stand.set_phase("Ready")
    stream = stand.bus._streams["PW_DATASETS"]
    stream.drop(2)
    stream._ids.clear()
    subject = command_subject("dataset-controller", "rebuild")
    reports = [
        from_json(RebuildReport, answer)
        for _ in range(2)
        for answer in await stand.bus.ask_all(subject, b"{}", within=0.2)
    ]
    assert [(r.replica, r.objects, r.facts_checked, r.facts_published) for r in reports] == [
        ("replica-0", 1, 4, 1),
        ("replica-0", 1, 4, 0),
    ]
    assert sorted(stand.facts()) == sorted(FACTS)


async def test_a_clear_needs_nothing_but_type_and_set(stand: Any) -> None:
    await start_set(stand)
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job(type="clear"))
    await stand.job_phase("Succeeded")
    [spec] = stand.runtime.runs("clear")
    assert (spec.clear.paths, spec.clear.partitions) == ([], [])


@pytest.mark.parametrize("kind", ["nonsense", ""])
async def test_an_unknown_type_is_told(stand: Any, kind: Any) -> None:
    await start_set(stand)
    await stand.cluster.create(ports.SAMPLE_JOBS, make_sample_job(type=kind))
    await stand.condition("Accepted", "ErrorJobTypeNotSupport", ports.SAMPLE_JOBS, "job")
