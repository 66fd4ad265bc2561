"""Keys of runs and nodes are built and parsed in one place, and no id can widen them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paddlewheel.contracts.run_keys import (
    NodeKey,
    Record,
    RunKey,
    RunRecord,
    parse_node_key,
    parse_run_record,
    record_pattern,
    set_pattern,
)
from paddlewheel.core.errors import Permanent

RUN = RunKey("set-1", "run_2")


def test_keys_of_a_run() -> None:
    assert (RUN.spec, RUN.state, RUN.cancel) == (
        "set-1.run_2.spec",
        "set-1.run_2.state",
        "set-1.run_2.cancel",
    )
    assert (RUN.part(12), RUN.pattern) == ("set-1.run_2.part-12", "set-1.run_2.>")
    assert (set_pattern("set-1"), record_pattern(Record.STATE)) == ("set-1.>", "*.*.state")


@pytest.mark.parametrize(
    ("key", "parsed"),
    [
        (RUN.spec, RunRecord(RUN, Record.SPEC)),
        (RUN.state, RunRecord(RUN, Record.STATE)),
        (RUN.cancel, RunRecord(RUN, Record.CANCEL)),
        (RUN.part(0), RunRecord(RUN, Record.PART, 0)),
        (RUN.part(12), RunRecord(RUN, Record.PART, 12)),
    ],
)
def test_keys_of_a_run_are_parsed(key: str, parsed: RunRecord) -> None:
    assert parse_run_record(key) == parsed


@pytest.mark.parametrize(
    "key",
    [
        *("", "s", "s.r", "s.r.t.spec", "s.r.part", "s.r.part-", "s.r.part-x", "s.r.part-²", "s.r.other"),
        *("a b.r.state", "s.a b.state", ".r.state", "s..state", "*.r.state", "s.>.state", "s/t.r.part-1"),
    ],
)
def test_other_keys_are_no_records_of_a_run(key: str) -> None:
    assert parse_run_record(key) is None


def test_keys_of_nodes() -> None:
    assert str(NodeKey("set-1", 3)) == "set-1.3"
    assert parse_node_key("set-1.3") == NodeKey("set-1", 3)


@pytest.mark.parametrize("key", ["", "set-1", "set-1.", "set-1.x", ".3", "a.b.3"])
def test_other_keys_are_no_records_of_a_node(key: str) -> None:
    assert parse_node_key(key) is None


BUILDERS: dict[str, Callable[[str], str]] = {
    "run": lambda uid: RunKey("set", uid).spec,
    "set": lambda uid: RunKey(uid, "run").part(1),
    "pattern of a run": lambda uid: RunKey(uid, "run").pattern,
    "node": lambda uid: str(NodeKey(uid, 1)),
    "pattern of a set": set_pattern,
}


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
@pytest.mark.parametrize("uid", ["", "*", ">", "a.b", "a b"])
def test_no_id_can_address_the_records_of_others(build: Callable[[str], str], uid: str) -> None:
    with pytest.raises(Permanent, match="MalformedSubject"):
        build(uid)
