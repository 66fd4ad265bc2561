"""Checks after a case: files by checksum, and the figures of the status against the files. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.integration.cache_runtime.fault_matrix.cases import (
    SUCCEEDED,
    End,
    Operation,
    Scenario,
    Tree,
    ends_of,
)

from paddlewheel.contracts.generated.cache_v1 import NodeStatus, RunPhase, RunState, SyncOperation

Digests = Mapping[str, str]
"""By relative path: SHA-256 of a file, or `-> target` for a link."""

_KEPT = re.compile(r"(\d+) files? (?:was|were) there")
_TEMPORARY = re.compile(r"(^|/)(\.jfs\..*\.tmp\.\d+|paddlewheel-(list|keys)-[^/]*)$", re.DOTALL)


@dataclass(frozen=True)
class Report:
    """The report of a node, and the bytes of blocks on its cache disk."""

    status: NodeStatus
    blocks: int


@dataclass(frozen=True)
class Node:
    """The state of a node.

    Args:
        files: what its mount shows.
        cached: bytes of each that the client itself finds in its cache, before anything is read, by path.
        scratch: files in the agent's own directory for copies.
    """

    files: Digests
    cached: Mapping[str, int]
    scratch: tuple[str, ...]
    report: Report


@dataclass(frozen=True)
class Found:
    """Everything after a case.

    Args:
        outside: files that no operation may touch, by place, as pairs of before and after.
        midway: the fault came before the run had ended.
        outage: seconds that it lasted, until all was repaired.
    """

    state: RunState
    nodes: tuple[Node, ...]
    source: Digests
    outside: Mapping[str, tuple[Digests, Digests]]
    midway: bool
    outage: float


def judge(scenario: Scenario, links: Digests, found: Found) -> list[str]:
    """Every broken promise, as text.

    Args:
        links: in the set before and after the case.
    """
    problems = [*judge_end(scenario, found), *judge_claims(scenario, found)]
    for number, node in enumerate(found.nodes):
        problems += judge_files(f"mount {number}", _versions(scenario, links, found, node), node.files)
        problems += [
            f"node {number}: left behind {name!r}" for name in temporary((*node.files, *node.scratch))
        ]
        problems += [f"node {number}: {text}" for text in judge_report(node.report)]
    problems += judge_source(scenario, found)
    for place, (before, after) in found.outside.items():
        problems += judge_files(place, (before, before), after)
    return problems


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digests(files: Tree) -> Digests:
    """Digests of known contents."""
    return {path: digest(data) for path, data in files.items()}


def judge_files(place: str, versions: tuple[Digests, Digests], found: Digests) -> list[str]:
    """Each file is in one of two versions, before or after; absence is a version, too."""
    before, after = versions
    problems = []
    for path in sorted({*before, *after, *found}):
        allowed = {before.get(path), after.get(path)}
        if found.get(path) not in allowed and not temporary([path]):
            problems.append(f"{place}: {path!r} {_wrong(allowed, found.get(path))}")
    return problems


def judge_end(scenario: Scenario, found: Found) -> list[str]:
    """Problems with the end of the run."""
    state = found.state
    end: End = (state.phase, state.reason)
    return (
        []
        if end in ends_of(scenario.case, found.outage)
        else [f"ended {state.phase.name} {state.reason}: {state.message}"]
    )


def judge_claims(scenario: Scenario, found: Found) -> list[str]:
    """Problems with the figures of the run."""
    state, wanted = found.state, scenario.wanted
    problems = []
    if state.phase is RunPhase.SUCCEEDED:
        size = sum(map(len, wanted.values()))
        said = (state.files_done, state.files_total, state.bytes_done, state.bytes_total)
        is_right = (len(wanted), len(wanted), size, size)
        problems += [f"files and bytes {said}, should be {is_right}"] if said != is_right else []
    else:
        problems += [] if state.files_done < len(wanted) else ["failed, and claims that all is done"]
    problems += judge_kept(scenario, found)
    claimed = int(state.cached_percent * state.bytes_total / 100)
    held = _cached_somewhere(found.nodes)
    cached = sum(held.values())
    problems += [f"claims {claimed} cached bytes of {cached}"] if claimed > cached else []
    is_warm = scenario.case.operation is Operation.WARMUP and (state.phase, state.reason) == SUCCEEDED
    cold = sum(held.get(path, 0) < len(data) for path, data in wanted.items())
    problems += [f"succeeded, and {cold} files are not cached"] if is_warm and cold else []
    is_cleared = scenario.case.operation is Operation.CLEAR and state.phase is RunPhase.SUCCEEDED
    problems += [f"{cached} bytes are cached after a clear"] if is_cleared and cached else []
    return problems


def judge_kept(scenario: Scenario, found: Found) -> list[str]:
    """Problems with the number of files that a sync reports as not compared.

    The number includes files that an interrupted try has copied and an update finds. It does not include
    files that the sync replaces when a chunk is executed again.
    """
    if scenario.case.operation is not Operation.SYNC or found.state.phase is not RunPhase.SUCCEEDED:
        return []
    told = int(said[1]) if (said := _KEPT.match(found.state.message)) else 0
    least = scenario.kept - len(_replaced(scenario, found, found.nodes[0]))
    is_forced = isinstance(scenario.request, SyncOperation) and scenario.request.force_update
    most = len(scenario.wanted) if _is_done_again(scenario, found) and not is_forced else scenario.kept
    if least <= told <= most:
        return []
    return [f"says that {told} files were not compared, of {least} to {most}"]


def _replaced(scenario: Scenario, found: Found, node: Node) -> Digests:
    """Files that have the contents which a second execution of their chunk gives them."""
    replaced = digests(scenario.replaced) if _is_done_again(scenario, found) else {}
    return {path: name for path, name in replaced.items() if node.files.get(path) == name}


def _is_done_again(scenario: Scenario, found: Found) -> bool:
    """Whether some chunk may have been executed twice: the fault came before all were done."""
    return found.midway and not scenario.blow.ending


def _cached_somewhere(nodes: Iterable[Node]) -> Mapping[str, int]:
    """Cached bytes by path: the larger figure of all nodes."""
    most: dict[str, int] = {}
    for node in nodes:
        for path, size in node.cached.items():
            most[path] = max(size, most.get(path, 0))
    return most


def judge_report(report: Report) -> list[str]:
    """Problems with the report of a node after the repair."""
    status = report.status
    said = (status.mounted, status.ailment, status.cached_bytes, status.staged_bytes)
    is_so = (True, "", report.blocks, 0)
    return [f"reports {said}, should be {is_so}"] if said != is_so else []


def judge_source(scenario: Scenario, found: Found) -> list[str]:
    """Problems with the source. A file that has left it is in the set, even if the run failed."""
    before, after = digests(scenario.source), digests(scenario.source_after)
    is_done = found.state.phase is RunPhase.SUCCEEDED
    allowed = {**after, **digests(scenario.left)} if is_done else before
    problems = judge_files("source", (allowed, after), found.source)
    in_set = set(found.nodes[0].files.values())
    gone = [path for path in before if path not in found.source and before[path] not in in_set]
    return problems + [f"{path!r} is neither in the source nor in the set" for path in gone]


def temporary(paths: Iterable[str]) -> list[str]:
    """Files that clients make while they work."""
    return sorted(path for path in paths if _TEMPORARY.search(path))


def _versions(scenario: Scenario, links: Digests, found: Found, node: Node) -> tuple[Digests, Digests]:
    before, after = ({**digests(tree), **links} for tree in (scenario.before, scenario.after))
    after = {**after, **_replaced(scenario, found, node)}
    return (after if found.state.phase is RunPhase.SUCCEEDED else before, after)


def _wrong(allowed: set[str | None], found: str | None) -> str:
    if found is None:
        return "is lost"
    return "should not be there" if allowed == {None} else "has other contents"
