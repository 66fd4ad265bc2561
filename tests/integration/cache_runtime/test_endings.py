"""The end of a run survives its master: it is judged once, and told once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.cache_runtime.cache_harness import CacheHarness

from paddlewheel.contracts.generated.cache_v1 import RunEnded, RunPhase, RunState, SyncOperation
from paddlewheel.testkit.storage import ObjectStore
from paddlewheel.testkit.wait import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

FILES, SIZE = 8, 250_000


async def test_a_master_killed_while_it_deletes_in_the_source_is_followed_to_the_same_end(
    harness: CacheHarness, tmp_path: Path, object_store: ObjectStore
) -> None:
    """The limit makes the comparison before the deletions last for seconds."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(FILES):
        (source / f"{number}.bin").write_bytes(bytes([number]) * SIZE)
    object_store.put_tree(source, "endings")
    move = SyncOperation(
        source=object_store.uri("endings"), secret="source", delete_src=True, bandwidth_limit=2
    )
    await harness.request("move", move)

    async def judged() -> RunState | None:
        state = await harness.state("move")
        assert state.phase is not RunPhase.SUCCEEDED, "it ended before it could be interrupted"
        return state if state.judgement else None

    before = await eventually(judged, every=0.05, what="the first master deletes")
    assert before is not None
    harness.runtimes.kill(int(before.master[-1]))

    state = await harness.ended("move", within=90)
    assert (state.phase, state.reason, state.message) == (RunPhase.SUCCEEDED, "", "")
    assert (state.files_done, state.bytes_done) == (FILES, FILES * SIZE)
    assert (state.term, state.master != before.master) == (2, True)
    ends = [fact for fact in await harness.facts(RunEnded) if fact.run_id == "move"]
    assert [(fact.phase, fact.files) for fact in ends] == [(RunPhase.SUCCEEDED, FILES)]
    again = await harness.run("again", move)
    assert (again.phase, again.reason) == (RunPhase.FAILED, "SourceEmpty")
