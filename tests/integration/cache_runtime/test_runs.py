"""The other operations, cancelling, secrets, node records and facts."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.integration.cache_runtime.cache_harness import CacheHarness, fill

from cache_runtime.timing import CLOCK_STEP_GRACE_SECONDS
from paddlewheel.contracts.generated.cache_v1 import (
    NodeMounted,
    PartitionState,
    RemoveOperation,
    RunEnded,
    RunPhase,
    RunStarted,
    SyncOperation,
    WarmupOperation,
)
from paddlewheel.contracts.generated.cacheprogress_v1 import RunProgressed
from paddlewheel.contracts.wire import to_json
from paddlewheel.testkit.storage import ObjectStore
from paddlewheel.testkit.wait import eventually


async def test_paths_never_leave_the_data_set(shared_harness: CacheHarness, tmp_path: Path) -> None:
    top = shared_harness.runtimes.mount_path(0)
    outside = tmp_path / "outside"
    fill(outside, 3)
    (top / "link").symlink_to(outside)

    climbing = await shared_harness.run("r1", RemoveOperation(paths=["../outside"]))
    assert (climbing.phase, climbing.reason) == (RunPhase.FAILED, "InvalidPath")
    linked = await shared_harness.run("r2", RemoveOperation(paths=["link/d0"]))
    assert (linked.phase, linked.reason) == (RunPhase.FAILED, "FilesFailed")
    warmed = await shared_harness.run("r3", WarmupOperation(paths=["link"]))
    assert (warmed.phase, warmed.reason) == (RunPhase.FAILED, "InvalidPath")
    own = await shared_harness.run("r4", RemoveOperation(paths=[".stats"]))
    assert own.phase is RunPhase.FAILED
    assert len(list(outside.rglob("*.bin"))) == 3


async def test_cancelling_stops_only_that_run(
    shared_harness: CacheHarness, object_store: ObjectStore, tmp_path: Path
) -> None:
    fill(tmp_path / "source", 40, 200_000)
    object_store.put_tree(tmp_path / "source", "cancel")
    slow = SyncOperation(source=object_store.uri("cancel"), secret="source", bandwidth_limit=2)
    await shared_harness.request("slow", slow)
    await eventually(lambda: _listed(shared_harness, "slow"))
    await shared_harness.request("other", WarmupOperation())
    await shared_harness.cancel("slow")

    cancelled, other = await shared_harness.ended("slow"), await shared_harness.ended("other")
    assert (cancelled.phase, other.phase) == (RunPhase.CANCELLED, RunPhase.SUCCEEDED)
    assert cancelled.files_done < 40
    ended = {fact.run_id: fact.phase for fact in await shared_harness.facts(RunEnded)}
    assert (ended["slow"], ended["other"]) == (RunPhase.CANCELLED, RunPhase.SUCCEEDED)


async def _listed(shared_harness: CacheHarness, run_id: str) -> bool:
    return bool((await shared_harness.state(run_id)).listed)


async def test_secrets_stay_out_of_records_facts_logs_and_arguments(
    shared_harness: CacheHarness, object_store: ObjectStore, tmp_path: Path
) -> None:
    fill(tmp_path / "source", 6)
    object_store.put_tree(tmp_path / "source", "private", "deep")
    seen: set[bytes] = set()
    watching = asyncio.create_task(_collect_arguments(shared_harness, seen))
    source = object_store.uri("private", "deep")
    good = await shared_harness.run("good", SyncOperation(source=source, secret="source"))
    shared_harness.runtimes.write_secret("job-bad", {"access-key": "nobody", "secret-key": "wrong-secret"})
    bad = await shared_harness.run("bad", SyncOperation(source=source, secret="job-bad", destination="x"))
    missing = await shared_harness.run("missing", SyncOperation(source=source, secret="job-none"))
    watching.cancel()

    assert (good.phase, good.files_done) == (RunPhase.SUCCEEDED, 6)
    assert (bad.phase, bad.reason) == (RunPhase.FAILED, "ListingFailed")
    assert (missing.phase, missing.reason) == (RunPhase.FAILED, "SecretMissing")
    entries = await shared_harness.bus.key_value("pw_cache_runs").entries(">")
    facts = await shared_harness.facts(RunStarted, RunProgressed, RunEnded, NodeMounted)
    assert any(b"juicefs" in line and b"sync" in line for line in seen)
    everything = [entry.value or b"" for entry in entries] + [to_json(fact) for fact in facts]
    everything += [shared_harness.runtimes.log(p).encode() for p in (0, 1)] + [b"\n".join(seen)]
    for secret in (object_store.secret_key.encode(), b"wrong-secret"):
        assert not any(secret in text for text in everything)


async def _collect_arguments(harness: CacheHarness, seen: set[bytes]) -> None:
    """Command lines of the JuiceFS processes that the agents have started: this machine may run others."""
    while True:
        for pid in harness.runtimes.descendants():
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"juicefs" in line:
                seen.add(line)
        await asyncio.sleep(0.01)


async def test_an_empty_or_invalid_source_fails_with_a_remedy(
    shared_harness: CacheHarness, object_store: ObjectStore
) -> None:
    object_store.make_bucket("void")
    empty = await shared_harness.run(
        "e1", SyncOperation(source=object_store.uri("void", "x"), secret="source")
    )
    assert (empty.phase, empty.reason) == (RunPhase.FAILED, "SourceEmpty")
    nonsense = await shared_harness.run("e2", SyncOperation(source="bucket", secret="source"))
    assert (nonsense.phase, nonsense.reason) == (RunPhase.FAILED, "InvalidSource")
    strategy = await shared_harness.run("e3", WarmupOperation(strategy="sideways"))
    assert (strategy.phase, strategy.reason) == (RunPhase.FAILED, "UnknownStrategy")
    gone = await shared_harness.run("e4", WarmupOperation(paths=["no/such"]))
    assert (gone.phase, gone.reason) == (RunPhase.FAILED, "PathNotFound")


async def test_an_update_that_copies_nothing_keeps_all_also_when_it_was_interrupted(
    shared_harness: CacheHarness, object_store: ObjectStore, tmp_path: Path
) -> None:
    """An agent has begun before this one, and ended before it has copied anything."""
    fill(tmp_path / "source", 5)
    object_store.put_tree(tmp_path / "source", "kept")
    sync = SyncOperation(source=object_store.uri("kept"), secret="source", destination="kept", update=True)
    assert (await shared_harness.run("k1", sync)).files_kept == 0
    copied = [p.stat().st_ctime for p in (shared_harness.runtimes.mount_path(0) / "kept").rglob("*")]
    old = max(copied) + CLOCK_STEP_GRACE_SECONDS
    await eventually(lambda: time.time() > old)
    for run_id, begun_at, kept in (("k2", time.time(), 5), ("k3", min(copied), 0)):
        begun = datetime.fromtimestamp(begun_at, UTC)
        for partition in (0, 1):
            left = PartitionState(partition=partition, agent="other", attempts=1, begun_at=begun)
            await shared_harness.put_part(run_id, left)
        assert (await shared_harness.run(run_id, sync)).files_kept == kept


async def test_sync_again_deletes_what_the_source_lost(
    shared_harness: CacheHarness, object_store: ObjectStore, tmp_path: Path
) -> None:
    fill(tmp_path / "source", 5)
    object_store.put_tree(tmp_path / "source", "again")
    sync = SyncOperation(source=object_store.uri("again"), secret="source", destination="in")
    assert (await shared_harness.run("s1", sync)).files_done == 5
    top = shared_harness.runtimes.mount_path(1)
    (top / "in/extra").write_text("too much")

    dry = await shared_harness.run("s2", sync.model_copy(update={"dry": True, "delete_dst": True}))
    assert (dry.phase, dry.files_total, dry.files_done) == (RunPhase.SUCCEEDED, 5, 0)
    assert dry.message == "dry run: 5 files of 49 KiB in the source, nothing was copied"
    assert (top / "in/extra").exists()
    assert (
        await shared_harness.run("s3", sync.model_copy(update={"delete_dst": True}))
    ).phase is RunPhase.SUCCEEDED
    await eventually(lambda: not (top / "in/extra").exists())
    assert len([p for p in (top / "in").rglob("*") if p.is_file()]) == 5
