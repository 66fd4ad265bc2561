"""One SampleSet's life on a real API server and a real NATS, through bad input and faults."""

from __future__ import annotations

import base64
from typing import Any

from paddlewheel.contracts.dataset_names import node_label, set_label
from paddlewheel.contracts.generated.cache_v1 import RunPhase
from paddlewheel.contracts.keys import Key
from paddlewheel.kube import ports
from paddlewheel.testkit.samplesets import make_sample_job, make_sample_set, make_secret
from paddlewheel.testkit.wait import eventually

PATH = ["Bound", "Mount", "Syncing", "Mount", "PartialReady", "Ready"]
FACTS = ["SampleSetBound", "SampleSetMounted", "SampleSetSynced", "SampleSetReady"]


def encode(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


async def start(bench: Any, **spec: Any) -> Any:
    await bench.create(ports.SECRETS, make_secret())
    return await bench.create(ports.SAMPLE_SETS, make_sample_set(**spec))


async def quiet_version(bench: Any) -> Any:
    """The set's resourceVersion once its own writes have ended."""
    return (await bench.get(ports.SAMPLE_SETS))["metadata"]["resourceVersion"]


async def test_no_secret_then_a_wrong_key_then_the_right_ones(bench: Any, service: Any, nodes: Any) -> None:
    await service.start()
    await bench.create(ports.SAMPLE_SETS, make_sample_set(partitions=2))
    missing = await bench.condition("Accepted", "ErrorSecretNotExist")
    assert f"Secret {bench.namespace}/digits does not exist" in missing["message"]
    secret = make_secret(values={"name": "vol", "storage": "redis", "meta-url": "redis://r/0"})
    await bench.create(ports.SECRETS, secret)
    wrong = await bench.condition("Accepted", "SecretInvalid")
    assert "lacks bucket and metaurl; set stringData.bucket" in wrong["message"]
    before = await quiet_version(bench)
    await bench.cluster.patch(ports.SECRETS, bench.key("digits"), {"metadata": {"labels": {"a": "b"}}})
    await bench.cluster.patch(ports.SECRETS, bench.key("digits"), {"data": {"bucket": encode("b")}})
    await eventually(lambda: lacks(bench, "lacks metaurl"), within=20)
    writes = [o for o in bench.changes if o["metadata"]["resourceVersion"] > before]
    assert len(writes) == 1
    await bench.cluster.patch(ports.SECRETS, bench.key("digits"), {"data": make_secret()["data"]})
    ready = (await bench.phase("Ready"))["status"]
    assert ready["runtimeStatus"]["runtimeReady"] == "2/2"
    assert ready["cacheStatus"]["totalFiles"] == "10"
    await eventually(lambda: bench.phases() == PATH, within=5, what=str(bench.phases()))
    await eventually(lambda: bench.facts() == FACTS, within=10)
    await eventually(lambda: told(bench), within=10)
    label = node_label(bench.namespace, "digits")
    labels = [n["metadata"]["labels"] for n in await bench.cluster.list(ports.NODES, label_selector=label)]
    assert sorted(found[label] for found in labels) == ["0", "1"]
    assert sorted(found[set_label("digits")] for found in labels) == ["digits-runtime-0", "digits-runtime-1"]


async def lacks(bench: Any, words: Any) -> Any:
    conditions = (await bench.get(ports.SAMPLE_SETS))["status"]["conditions"]
    return any(words in c["message"] for c in conditions)


async def told(bench: Any) -> Any:
    events = {(e["type"], e["reason"]) for e in await bench.cluster.list(ports.EVENTS, bench.namespace)}
    expected = {("Warning", "ErrorSecretNotExist"), ("Warning", "SecretInvalid")}
    return expected | {("Normal", "DoSyncJobSuccessfully")} <= events


async def test_a_ready_set_is_not_written_again_while_nothing_changes(bench: Any, service: Any) -> None:
    await service.start()
    created = await start(bench)
    await bench.phase("Ready")
    await bench.runtime.report(created["metadata"]["uid"], 1)
    version = await quiet_version(bench)
    for i in range(5):
        await bench.runtime.report(created["metadata"]["uid"], 1)
        pod = {"metadata": {"annotations": {"seen": str(i)}}}
        await bench.cluster.patch(ports.PODS, bench.key("digits-runtime-0"), pod)
    # The first thing that matters: whatever came before it has been looked at by then.
    await bench.runtime.report(created["metadata"]["uid"], 1, mounted=False)
    await bench.phase("PartialReady")
    changed = [o for o in bench.changes if int(o["metadata"]["resourceVersion"]) > int(version)]
    assert [o["status"]["phase"] for o in changed] == ["PartialReady"]


async def test_killed_in_the_middle_it_converges(bench: Any, service: Any) -> None:
    bench.runtime.script = {"sync": RunPhase.RUNNING, "warmup": RunPhase.RUNNING}
    await service.start()
    await start(bench, partitions=2, warmup={})
    await eventually(lambda: bench.runtime.runs("sync"), within=60)
    before = await bench.get(ports.STATEFUL_SETS, "digits-runtime")
    await service.kill()
    [spec] = bench.runtime.runs("sync")
    await bench.runtime.end(spec, RunPhase.SUCCEEDED)
    await service.start()
    await eventually(lambda: bench.runtime.runs("warmup"), within=60)
    await service.kill()
    await bench.runtime.end(bench.runtime.runs("warmup")[0], RunPhase.SUCCEEDED)
    await service.start()
    ready = (await bench.phase("Ready"))["status"]
    assert ready["jobsName"]["syncJobName"] == spec.run_id
    assert [len(bench.runtime.runs(o)) for o in ("sync", "warmup")] == [1, 1]
    after = await bench.get(ports.STATEFUL_SETS, "digits-runtime")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    await eventually(lambda: bench.facts() == [*FACTS[:3], "SampleSetWarmed", "SampleSetReady"], within=10)
    assert len({e.id for e in bench.events}) == len(bench.events)


async def test_a_bus_that_loses_everything_loses_no_run(bench: Any, service: Any, nats_server: Any) -> None:
    bench.runtime.script = {"sync": RunPhase.RUNNING}
    await service.start()
    await start(bench)
    await eventually(lambda: bench.runtime.runs("sync"), within=60)
    nats_server.lose_data()
    await eventually(lambda: len(bench.runtime.runs("sync")) == 2, within=60)
    first, second = bench.runtime.runs("sync")
    assert first.run_id == second.run_id
    await bench.runtime.end(second, RunPhase.SUCCEEDED)
    await bench.phase("Ready")


async def test_facts_wait_for_a_bus_that_is_away(bench: Any, service: Any, nats_server: Any) -> None:
    nats_server.kill()
    await service.start()
    await start(bench)
    syncing = await bench.phase("Syncing")
    assert not any(a["announced"] for a in syncing["status"]["announcements"])
    nats_server.start()
    await bench.phase("Ready")
    await eventually(lambda: bench.facts() == FACTS, within=20)


async def test_jobs_run_fail_and_end_with_their_objects(bench: Any, service: Any) -> None:
    await service.start()
    await start(bench)
    await bench.create(ports.SAMPLE_JOBS, make_sample_job("warm", warmupOptions={"paths": ["train"]}))
    warm = (await bench.phase("Succeeded", ports.SAMPLE_JOBS, "warm"))["status"]
    assert (warm["progress"]["filesDone"], warm["progress"]["cachedPercent"]) == (10, 100)
    assert warm["completionTime"]
    bench.runtime.script = {"warmup": RunPhase.RUNNING}
    await bench.create(ports.SAMPLE_JOBS, make_sample_job("slow"))
    await bench.phase("Running", ports.SAMPLE_JOBS, "slow")
    slow = bench.runtime.runs("warmup")[-1]
    await bench.cluster.delete(ports.SAMPLE_JOBS, bench.key("slow"))
    await bench.gone(ports.SAMPLE_JOBS, "slow")
    runs = bench.bus.key_value("pw_cache_runs")
    assert await runs.entries(f"{slow.set_uid}.{slow.run_id}.>") == []


async def test_scaling_and_deleting_leave_nothing_behind(bench: Any, service: Any) -> None:
    await service.start()
    created = await start(bench, partitions=2)
    await bench.phase("Ready")
    await bench.cluster.patch(ports.SAMPLE_SETS, bench.key("digits"), {"spec": {"partitions": 1}})
    await eventually(lambda: bench.phases()[-2:] == ["PartialReady", "Ready"], within=30)
    await eventually(lambda: bench.phases().count("Ready") == 2, within=60)
    assert [c.clear.partitions for c in bench.runtime.runs("clear")] == [[1]]
    label = node_label(bench.namespace, "digits")
    assert len(await bench.cluster.list(ports.NODES, label_selector=label)) == 1
    await bench.cluster.delete(ports.SAMPLE_SETS, bench.key("digits"))
    await bench.gone(ports.SAMPLE_SETS)
    for resource in (ports.STATEFUL_SETS, ports.PERSISTENT_VOLUME_CLAIMS, ports.SERVICES, ports.PODS):
        assert await bench.cluster.list(resource, bench.namespace) == []
    volume = Key("", f"{bench.namespace}-digits")
    assert volume.name not in [
        v["metadata"]["name"] for v in await bench.cluster.list(ports.PERSISTENT_VOLUMES)
    ]
    assert await bench.cluster.list(ports.NODES, label_selector=label) == []
    runs = bench.bus.key_value("pw_cache_runs")
    assert await runs.entries(f"{created['metadata']['uid']}.>") == []
    await eventually(lambda: bench.facts()[-1] == "SampleSetDeleted", within=10)
