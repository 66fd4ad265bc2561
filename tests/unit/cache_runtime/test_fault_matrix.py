"""The judge of the fault matrix finds what is lost, touched or claimed wrongly, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tests.integration.cache_runtime.fault_matrix.cases import (
    AGENT_REPLACEMENT_GRACE_SECONDS,
    Case,
    Fault,
    Operation,
    Scenario,
    draw,
    pairs,
)
from tests.integration.cache_runtime.fault_matrix.judging import (
    Digests,
    Found,
    Node,
    Report,
    digests,
    judge,
    judge_files,
    temporary,
)

from paddlewheel.contracts.generated.cache_v1 import NodeStatus, RunPhase, RunState, SyncOperation

SEEDS = range(4)
OLD, NEW = {"a": "1", "b": "1", "gone": "1"}, {"a": "1", "b": "2", "new": "1"}


@cache
def scenarios(operation: Operation) -> list[Scenario]:
    return [draw(Case(operation, fault, seed), "s3://x") for fault in Fault for seed in SEEDS]


def well(scenario: Scenario) -> Found:
    """Everything as it is when all promises are kept."""
    size = sum(map(len, scenario.wanted.values()))
    is_warmup = scenario.case.operation is Operation.WARMUP
    state = RunState(
        phase=RunPhase.SUCCEEDED, files_done=len(scenario.wanted), files_total=len(scenario.wanted),
        message=f"{scenario.kept} files were there with" if scenario.kept else "",
        bytes_done=size, bytes_total=size, cached_percent=100.0 if is_warmup else 0.0,
    )  # fmt: skip
    cached = {path: len(data) for path, data in scenario.wanted.items()} if is_warmup else {}
    blocks = sum(cached.values())
    report = Report(NodeStatus(mounted=True, cached_bytes=blocks), blocks)
    node = Node(digests(scenario.after), cached, (), report)
    neighbours: Digests = {"neighbour": "1"}
    return Found(
        state, (node, node), digests(scenario.source_after), {"bucket": (neighbours, neighbours)}, True, 0.0
    )


def scenario_of(operation: Operation) -> Scenario:
    return draw(Case(operation, Fault.AGENT, 1), "s3://x")


def moving() -> Scenario:
    """A sync that empties its source."""
    return next(s for s in scenarios(Operation.SYNC) if not s.source_after)


def test_a_warmup_may_lack_the_cache_of_an_agent_that_was_really_away_for_long() -> None:
    scenario = scenario_of(Operation.WARMUP)
    found = well(scenario)
    partly = replace(found, state=found.state.model_copy(update={"reason": "PartlyCached"}))
    assert judge(scenario, {}, partly) != []
    assert judge(scenario, {}, replace(partly, outage=AGENT_REPLACEMENT_GRACE_SECONDS + 1)) == []


def test_every_pair_is_in_the_matrix() -> None:
    assert len(set(pairs())) == 24


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "fault"), pairs())
def test_a_case_is_drawn_from_its_seed_alone(operation: Operation, fault: Fault) -> None:
    case = Case(operation, fault, 7)
    assert draw(case) == draw(case)
    assert draw(case).before != draw(replace(case, seed=8)).before


def test_seeds_reach_every_kind_of_sync_and_every_outcome_of_a_file() -> None:
    drawn = scenarios(Operation.SYNC)
    assert {(s.request.delete_dst, s.request.delete_src) for s in drawn} == {  # type: ignore[attr-defined]
        (False, False), (True, False), (False, True),
    }  # fmt: skip
    manners = {(s.request.update, s.request.force_update) for s in drawn}  # type: ignore[attr-defined]
    assert manners == {(False, False), (True, False), (False, True)}
    assert {bool(s.written) for s in drawn} == {True, False}
    ending = {(s.request.delete_dst, s.request.delete_src) for s in drawn if s.blow.ending}  # type: ignore[attr-defined]
    assert ending == {(True, False), (False, True)}
    for scenario in drawn:
        before, after = scenario.before, scenario.after
        assert any(before[p] != after[p] for p in {*before} & {*after})
        others = {path: data for path, data in before.items() if after.get(path, data) != data}
        assert scenario.kept == 0 or len(others) < 5 or scenario.left
        assert any(not data for data in scenario.source.values())
        assert any(path.startswith("kept/") for path in after)


def test_a_removal_removes_some_and_keeps_some() -> None:
    for scenario in scenarios(Operation.RMR):
        assert 0 < len(scenario.after) < len(scenario.before)
        assert any(path.startswith("in/") for path in scenario.after)


@pytest.mark.slow
@pytest.mark.parametrize("operation", Operation)
def test_all_is_well(operation: Operation) -> None:
    for scenario in scenarios(operation):
        assert judge(scenario, {}, well(scenario)) == []


@pytest.mark.parametrize(
    ("path", "found", "problem"),
    [
        ("a", None, "set: 'a' is lost"),
        ("a", "2", "set: 'a' has other contents"),
        ("b", "3", "set: 'b' has other contents"),
        ("other", "1", "set: 'other' should not be there"),
    ],
)
def test_a_file_in_neither_of_its_versions_is_named(path: str, found: str | None, problem: str) -> None:
    there = {name: value for name, value in {**NEW, path: found}.items() if value is not None}
    assert judge_files("set", (OLD, NEW), there) == [problem]


def test_after_a_failure_each_file_may_be_in_either_version() -> None:
    assert judge_files("set", (OLD, NEW), OLD) == judge_files("set", (OLD, NEW), {**NEW, "gone": "1"}) == []


def test_what_has_left_the_source_and_is_not_in_the_set_is_lost() -> None:
    scenario = moving()
    found = well(scenario)
    path, content = next(iter(digests(scenario.source).items()))
    files = {name: value for name, value in found.nodes[0].files.items() if value != content}
    poorer = replace(found, nodes=(replace(found.nodes[0], files=files), found.nodes[1]))
    assert f"{path!r} is neither in the source nor in the set" in judge(scenario, {}, poorer)


def test_what_is_outside_may_not_change() -> None:
    scenario = scenario_of(Operation.RMR)
    touched = replace(well(scenario), outside={"node": ({"x": "1"}, {})})
    assert judge(scenario, {}, touched) == ["node: 'x' is lost"]


def test_temporary_files_are_named_once_for_each_mount() -> None:
    scenario = scenario_of(Operation.SYNC)
    found = well(scenario)
    left = {**found.nodes[0].files, "in/.jfs.a.bin.tmp.12": "1"}
    nodes = (replace(found.nodes[0], files=left, scratch=("cell/tmp/paddlewheel-keys-x",)), found.nodes[1])
    assert judge(scenario, {}, replace(found, nodes=nodes)) == [
        "node 0: left behind 'cell/tmp/paddlewheel-keys-x'", "node 0: left behind 'in/.jfs.a.bin.tmp.12'",
    ]  # fmt: skip
    assert temporary(["in/.jfs.a.bin.tmp.x", "tmp.1", "in/paddlewheel-x"]) == []


@pytest.mark.parametrize(
    ("operation", "claim", "problem"),
    [
        (Operation.SYNC, {"files_done": 1}, "files and bytes"),
        (Operation.SYNC, {"bytes_total": 1}, "files and bytes"),
        (Operation.RMR, {"phase": RunPhase.FAILED, "reason": "InternalError"}, "ended FAILED InternalError"),
        (Operation.RMR, {"phase": RunPhase.FAILED}, "failed, and claims that all is done"),
    ],
)
def test_a_claim_of_the_run_that_is_not_so(
    operation: Operation, claim: dict[str, object], problem: str
) -> None:
    scenario = scenario_of(operation)
    found = well(scenario)
    problems = judge(scenario, {}, replace(found, state=found.state.model_copy(update=claim)))
    assert any(text.startswith(problem) for text in problems), problems


def told(found: Found, count: int) -> Found:
    return replace(found, state=found.state.model_copy(update={"message": f"{count} files were there with"}))


def copying(manner: str) -> Scenario:
    """A sync in the middle of which the fault comes, and that empties no source."""
    return next(
        s
        for s in scenarios(Operation.SYNC)
        if not s.blow.ending and s.source_after and manner_of(s) == manner
    )


def manner_of(scenario: Scenario) -> str:
    assert isinstance(scenario.request, SyncOperation)
    if scenario.request.update:
        return "update"
    return "force" if scenario.request.force_update else "size"


@pytest.mark.parametrize("manner", ["size", "update"])
@pytest.mark.parametrize("claim", [0, 1, 31])
def test_a_sync_tells_of_all_that_it_has_not_compared(manner: str, claim: int) -> None:
    scenario = copying(manner)
    (problem,) = judge(scenario, {}, told(well(scenario), claim))
    assert problem == f"says that {claim} files were not compared, of {scenario.kept} to 30"


@pytest.mark.parametrize("manner", ["force", "size", "update"])
def test_a_sync_tells_of_more_only_after_a_fault_in_its_midst(manner: str) -> None:
    scenario = copying(manner)
    more = told(well(scenario), scenario.kept + 1)
    assert bool(judge(scenario, {}, more)) is (manner == "force")
    ending = replace(scenario, blow=replace(scenario.blow, ending=True))
    for case, found in ((scenario, replace(more, midway=False)), (ending, more)):
        (problem,) = judge(case, {}, found)
        assert problem.endswith(f" of {scenario.kept} to {scenario.kept}")


def test_a_chunk_that_is_executed_again_replaces_what_has_the_same_size() -> None:
    scenario = copying("size")
    found = well(scenario)
    path, content = next(iter(digests(scenario.replaced).items()))
    nodes = tuple(replace(node, files={**node.files, path: content}) for node in found.nodes)
    again = replace(found, nodes=nodes)
    assert judge(scenario, {}, told(again, scenario.kept - 1)) == []
    assert judge(scenario, {}, told(again, scenario.kept - 2)) != []
    assert judge(scenario, {}, told(replace(again, midway=False), scenario.kept)) == [
        f"mount {number}: {path!r} has other contents" for number in (0, 1)
    ]


def test_what_an_update_keeps_is_neither_lost_in_the_source_nor_replaced() -> None:
    scenario = next(s for s in scenarios(Operation.SYNC) if s.request.update)  # type: ignore[attr-defined]
    path = next(iter(scenario.newer))
    found = well(scenario)
    files = {**found.nodes[0].files, path: digests(scenario.wanted)[path.removeprefix("in/")]}
    nodes = (replace(found.nodes[0], files=files), found.nodes[1])
    (problem,) = judge(scenario, {}, replace(found, nodes=nodes))
    assert problem == f"mount 0: {path!r} has other contents"


def test_a_warmup_claims_no_more_than_the_caches_hold() -> None:
    scenario = scenario_of(Operation.WARMUP)
    found = well(scenario)
    cold = tuple(replace(node, cached={}) for node in found.nodes)
    size = found.state.bytes_total
    assert judge(scenario, {}, replace(found, nodes=cold)) == [
        f"claims {size} cached bytes of 0",
        f"succeeded, and {sum(map(bool, scenario.wanted.values()))} files are not cached",
    ]


def test_a_warmup_that_succeeds_has_cached_all_whatever_it_claims() -> None:
    scenario = scenario_of(Operation.WARMUP)
    found = well(scenario)
    modest = replace(found, state=found.state.model_copy(update={"cached_percent": 0.0}))
    assert judge(scenario, {}, modest) == []
    cold = replace(modest, nodes=tuple(replace(node, cached={}) for node in found.nodes))
    assert [text.partition(",")[0] for text in judge(scenario, {}, cold)] == ["succeeded"]
    partly = replace(cold, state=cold.state.model_copy(update={"reason": "PartlyCached"}))
    assert not any(text.startswith("succeeded") for text in judge(scenario, {}, partly))


def test_what_both_caches_hold_makes_up_for_nothing() -> None:
    scenario = scenario_of(Operation.WARMUP)
    found, size = well(scenario), sum(map(len, scenario.wanted.values()))
    path = max(scenario.wanted, key=lambda path: len(scenario.wanted[path]))
    half = {name: held for name, held in found.nodes[0].cached.items() if name != path}
    nodes = tuple(replace(node, cached=half) for node in found.nodes)
    left = size - len(scenario.wanted[path])
    assert judge(scenario, {}, replace(found, nodes=nodes)) == [
        f"claims {size} cached bytes of {left}", "succeeded, and 1 files are not cached",
    ]  # fmt: skip


def test_a_cache_that_was_cleared_holds_nothing() -> None:
    scenario = scenario_of(Operation.CLEAR)
    found = well(scenario)
    nodes = (replace(found.nodes[0], cached={"a": 5}), found.nodes[1])
    assert judge(scenario, {}, replace(found, nodes=nodes)) == ["5 bytes are cached after a clear"]


@pytest.mark.parametrize("change", [{"mounted": False}, {"ailment": "CacheDiskFull"}, {"cached_bytes": 1}])
def test_a_report_of_a_node_that_is_not_so(change: dict[str, object]) -> None:
    scenario = scenario_of(Operation.RMR)
    found = well(scenario)
    status = found.nodes[0].report.status.model_copy(update=change)
    nodes = (replace(found.nodes[0], report=Report(status, 0)), found.nodes[1])
    (problem,) = judge(scenario, {}, replace(found, nodes=nodes))
    assert problem.startswith("node 0: reports")
