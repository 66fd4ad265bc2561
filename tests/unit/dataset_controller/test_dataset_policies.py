"""Single decisions as tables: the path of phases, labels, what a job may begin on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.dataset_controller.builders import (
    HOME,
    LABEL,
    NOW,
    make_labels,
    make_observed,
    make_observed_job,
    make_set,
    spec_of,
)

from dataset_controller.domain.actions import BUS, RECORD
from dataset_controller.domain.names import SetPhase
from dataset_controller.domain.samplejob.model import JobStatus
from dataset_controller.domain.samplejob.plan import plan as plan_job
from dataset_controller.domain.sampleset.model import CacheChange, CacheMark, SetPlan, SetStatus
from dataset_controller.domain.sampleset.policies.labels import decide_labels, homes
from dataset_controller.domain.sampleset.policies.phase import next_phase
from dataset_controller.domain.sampleset.policies.runs import OwnRuns, RunDecision, Stage
from dataset_controller.domain.sampleset.policies.runtime_secret import read_secrets
from dataset_controller.domain.sampleset.policies.sync import decide_sync
from dataset_controller.domain.sampleset.policies.warmup import decide_warmup, hold_next
from dataset_controller.domain.sampleset.runtime import Partition, Runtime, runtime_of
from paddlewheel.contracts.conditions import Condition
from paddlewheel.contracts.dataset_names import node_label, set_label
from paddlewheel.contracts.generated.cache_v1 import RunState, StagedElsewhere
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.reasons import Reason
from paddlewheel.operator.domain.plan import Applied, Plan, Trouble
from paddlewheel.testkit.samplesets import make_report


def job_status_of(todo: Plan[JobStatus]) -> JobStatus:
    assert todo.status is not None
    return todo.status


WHOLE = Runtime(True, 1, True, (Partition(0, "n", True),), frozenset({0}), (make_report("u", 0, NOW),))
HALF = Runtime(True, 1, False, (Partition(0, "n", False),), frozenset(), ())
UNBOUND = Runtime(False, -1, False, (), frozenset(), ())
DUE, RUNNING, DONE = (RunDecision(s) for s in (Stage.DUE, Stage.RUNNING, Stage.DONE))
FAILED, NONE = RunDecision(Stage.FAILED), RunDecision(Stage.NOT_NEEDED)
BLOCKED = RunDecision(Stage.BLOCKED)
LATE = RunDecision(Stage.DONE, state=RunState(ended_at=NOW + timedelta(seconds=1)))


@pytest.mark.parametrize(
    ("phase", "runtime", "sync", "warmup", "expected"),
    [
        ("NotBound", UNBOUND, BLOCKED, NONE, "NotBound"),
        ("NotBound", WHOLE, DUE, NONE, "Bound"),
        ("Bound", HALF, DUE, NONE, "Bound"),
        ("Bound", WHOLE, DUE, NONE, "Mount"),
        ("Mount", WHOLE, DUE, NONE, "Syncing"),
        ("Mount", HALF, DUE, NONE, "Mount"),
        ("Mount", WHOLE, BLOCKED, NONE, "Mount"),
        ("Mount", WHOLE, FAILED, NONE, "SyncFailed"),
        ("Mount", WHOLE, NONE, NONE, "PartialReady"),
        ("Mount", WHOLE, DONE, NONE, "PartialReady"),
        ("Mount", WHOLE, LATE, NONE, "Mount"),
        ("Mount", HALF, DONE, NONE, "Mount"),
        ("Syncing", WHOLE, RUNNING, NONE, "Syncing"),
        ("Syncing", WHOLE, DONE, NONE, "Mount"),
        ("Syncing", WHOLE, FAILED, NONE, "SyncFailed"),
        ("SyncFailed", WHOLE, FAILED, NONE, "SyncFailed"),
        ("SyncFailed", WHOLE, BLOCKED, NONE, "SyncFailed"),
        ("SyncFailed", WHOLE, DUE, NONE, "Mount"),
        ("SyncFailed", WHOLE, NONE, NONE, "Mount"),
        ("PartialReady", HALF, DONE, NONE, "PartialReady"),
        ("PartialReady", WHOLE, DONE, RUNNING, "PartialReady"),
        ("PartialReady", WHOLE, DONE, FAILED, "PartialReady"),
        ("PartialReady", WHOLE, DONE, DONE, "Ready"),
        ("Ready", WHOLE, DONE, RUNNING, "Ready"),
        ("Ready", HALF, DONE, DONE, "PartialReady"),
    ],
)
def test_the_path(
    phase: str, runtime: Runtime, sync: RunDecision, warmup: RunDecision, expected: str
) -> None:
    assert next_phase(SetPhase(phase), runtime, 1, OwnRuns(sync, warmup)).value == expected


def test_a_warmup_is_blocked_while_partitions_are_missing_and_a_sync_is_not() -> None:
    seen = make_observed("Mount", ready=1, replicas=2, spec={"partitions": 2, "warmup": {}})
    spec, runtime = spec_of(seen.sample_set), runtime_of(seen, NOW)
    assert decide_sync(seen, spec, read_secrets(seen, spec), NOW).stage is Stage.DUE
    assert decide_warmup(seen, spec, runtime, NOW) == RunDecision(Stage.BLOCKED)


@pytest.mark.parametrize(
    ("labels", "partition", "change"),
    [
        ({}, Partition(1, "n", True), make_labels(1)),
        ({}, Partition(1, "n", False), None),
        (make_labels(1), Partition(1, "n", False), dict.fromkeys(make_labels(1))),
        (make_labels(1), Partition(1, "n", True), None),
        (make_labels(0), Partition(1, "n", True), make_labels(1)),
        (make_labels(0), Partition(1, "n", False), dict.fromkeys(make_labels(0))),
        (make_labels(5), Partition(5, "n", True), dict.fromkeys(make_labels(5))),
        (make_labels(0), None, dict.fromkeys(make_labels(0))),
        (
            {set_label("digits"): "digits-runtime-0", node_label("other", "digits"): "0"},
            Partition(1, "n", True),
            {LABEL: "1", HOME: "1"},
        ),
        ({node_label("other", "digits"): "0"}, Partition(1, "n", True), make_labels(1)),
        (
            {**make_labels(0), node_label("other", "digits"): "0"},
            None,
            {LABEL: None, HOME: None},
        ),
    ],
)
def test_labels(
    labels: dict[str, str], partition: Partition | None, change: dict[str, str | None] | None
) -> None:
    node = {"metadata": {"name": "n", "labels": labels}}
    owner = make_set().identity
    made = decide_labels(owner, (node,), (partition,) if partition else (), 3)
    assert [p.patch["metadata"]["labels"] for p in made] == ([] if change is None else [change])


MOUNTED_NO_MORE = {LABEL: None, set_label("digits"): None}


@pytest.mark.parametrize(
    ("labels", "is_home", "change"),
    [
        (make_labels(1), True, MOUNTED_NO_MORE),
        ({HOME: "1"}, True, None),
        ({HOME: "1"}, False, {HOME: None}),
    ],
)
def test_a_node_stays_the_home_of_a_partition_without_its_mount(
    labels: dict[str, str], is_home: bool, change: dict[str, str | None] | None
) -> None:
    node, lost = {"metadata": {"name": "n", "labels": labels}}, Partition(1, "n", False)
    made = decide_labels(make_set().identity, (node,), (lost,), 3, lambda name: is_home and name == "n")
    assert [p.patch["metadata"]["labels"] for p in made] == ([] if change is None else [change])


def test_a_node_is_no_home_any_more_when_all_partitions_are_elsewhere_and_it_has_no_writes() -> None:
    seen = make_observed("Ready", ready=2, spec={"partitions": 2})
    runtime = runtime_of(seen, NOW)
    assert homes(seen, runtime, 3)("old"), "a partition is missing, and may come back"
    assert not homes(seen, runtime, 2)("old")
    assert homes(replace(seen, are_records_known=False), runtime, 2)("old")
    left = StagedElsewhere(node="old", staged_bytes=1)
    reports = (seen.reports[0], seen.reports[1].model_copy(update={"staged_elsewhere": [left]}))
    assert homes(replace(seen, reports=reports), runtime, 2)("old")


@pytest.mark.parametrize("name", ["s" * 44, "digits"])
@pytest.mark.parametrize("namespace", ["default", "n" * 63])
def test_label_keys_always_fit(name: str, namespace: str) -> None:
    key = node_label(namespace, name).partition("/")[2]
    assert len(key) <= 63
    assert key.endswith(f".{name}")
    assert node_label("m" * 63, name) != node_label("n" * 63, name)


@pytest.mark.parametrize(
    ("kind", "set_phase", "begins"),
    [
        ("sync", "Bound", False),
        ("sync", "Mount", True),
        ("sync", "SyncFailed", True),
        ("warmup", "Mount", False),
        ("warmup", "PartialReady", True),
        ("rmr", "SyncFailed", True),
        ("clear", "Syncing", False),
        ("clear", "Ready", True),
    ],
)
def test_a_job_begins_when_its_set_can_take_it(kind: str, set_phase: str, begins: bool) -> None:
    options: dict[str, Any] = {"rmrOptions": {"paths": ["x"]}, "secretRef": {"name": "source"}}
    own = make_set(set_phase, spec={"noSync": True})
    todo = plan_job(replace(make_observed_job(type=kind, **options), sample_set=own), NOW)
    status = job_status_of(todo)
    assert status.phase.value == ("Pending" if begins else "")
    assert bool(status.run_id) is begins
    assert todo.requeue_after == (0.0 if begins else None)


@pytest.mark.parametrize(
    ("kind", "record", "is_held"),
    [
        (BUS, "uid.other", True),
        (RECORD, "uid.first", True),
        (RECORD, "uid.other", False),
        ("Pod", "first", False),
    ],
)
def test_the_next_warmup_is_recorded_once_the_bus_has_forgotten_the_one_before(
    kind: str, record: str, is_held: bool
) -> None:
    """Silent or full, or full of something else."""
    cleared = CacheChange(CacheMark("2026-01-01T10:00:00.000Z", "clear"), Reason.CACHE_CLEARED)
    before = SetStatus(
        warmup_job="first",
        warmup_series=1,
        warmup_nodes=("node-0",),
        cache_mark=cleared.mark,
        invalidation=cleared,
        conditions=(Condition("Warmed", "False", Reason.CACHE_CLEARED),),
    )
    after = SetStatus(
        warmup_job="second",
        warmup_series=2,
        warmup_nodes=("node-1",),
        cache_mark=CacheMark("2026-01-01T12:00:00.000Z"),
        conditions=(Condition("Warmed", "False", Reason.WARMING),),
    )
    trouble = Trouble("delete", kind, Key("", record), "BusFull", "maximum bytes exceeded")
    held = hold_next(before, SetPlan(status=after), Applied(troubles=(trouble,), retry_after=7))
    assert held.status == (before if is_held else after)
    assert held.requeue_after == (7 if is_held else None)
