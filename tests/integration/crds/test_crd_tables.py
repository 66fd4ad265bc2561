"""What a user reads with `kubectl get`: the columns and cells that the API server prints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

NAMESPACE = "tables"
OBJECTS = """
- {kind: PaddleJob, metadata: {name: running}, status: {
    phase: Running, mode: Collective, ready: 2/2, reason: AllPodsRunning, message: "",
    startTime: "2026-01-01T00:00:00Z", progress: {step: 42, totalSteps: 100, percent: "42%"}}}
- {kind: PaddleJob, metadata: {name: waiting}, status: {
    phase: Pending, mode: Collective, ready: 0/2, reason: SampleSetNotFound, message: "create it"}}
- {kind: PaddleJob, metadata: {name: done}, status: {
    phase: Completed, mode: Collective, ready: 0/2, reason: Completed, message: "", duration: 3m20s,
    startTime: "2026-01-01T00:00:00Z", completionTime: "2026-01-01T00:03:20Z"}}
- {kind: SampleSet, metadata: {name: rejected}, status: {
    phase: NotBound, reason: SecretNotFound, message: "create the Secret"}}
- {kind: SampleJob, metadata: {name: warming}, status: {
    phase: Running, reason: Running, message: "", jobName: run, progress: {percent: "42%"}}}
- {kind: Trigger, metadata: {name: blocked}, status: {
    reason: BusUnavailable, message: "no answer", fired: 3, active: 1, skipped: 2, waiting: {events: 4},
    lastChild: {name: warm-x}, conditions: [{type: Ready, status: "True", reason: Active, message: "",
    lastTransitionTime: "2026-01-01T00:00:00Z"}]}}
- {kind: PaddleService, metadata: {name: digits}, status: {
    url: "http://digits.example.com", mode: Kubernetes, traffic: digits-a=95 digits-b=5, replicas: 2, reason:
    Stepping, message: "is watched", conditions: [{type: Ready, status: "True", reason: Serving, message: "",
    lastTransitionTime: "2026-01-01T00:00:00Z"}]}}
"""
TRIGGER = """
apiVersion: events.paddlepaddle.org/v1alpha1
kind: Trigger
metadata: {name: t}
spec:
  when: {fact: {type: paddlewheel.datasets.v1.SampleSetReady}}
  create: {sampleJob: {spec: {type: clear, sampleSetRef: {name: set}}}}
"""
AGE = re.compile(r"(\d+[smhdy])+")

Row = dict[str, str]


@pytest.fixture(scope="module")
def table(kubectl: Callable[..., Any], make: Callable[..., Any]) -> Iterator[Callable[..., list[Row]]]:
    """Rows of `kubectl get`, by column; ages as `AGE`."""
    kubectl("create", "namespace", NAMESPACE)
    for obj in yaml.safe_load(OBJECTS):
        kind = obj["kind"]
        manifest = yaml.safe_load(TRIGGER) if kind == "Trigger" else make(kind)
        manifest["metadata"] = {**obj["metadata"], "namespace": NAMESPACE}
        created = kubectl("create", "-f", "-", stdin=json.dumps(manifest))
        assert created.returncode == 0, created.stderr
        status = json.dumps({"status": obj["status"]})
        name = obj["metadata"]["name"]
        merge = ("-n", NAMESPACE, "--type=merge", "--subresource=status", "-p", status)
        patched = kubectl("patch", kind.lower(), name, *merge)
        assert patched.returncode == 0, patched.stderr

    def get(resource: str, *options: str) -> list[Row]:
        done = kubectl("get", resource, "-n", NAMESPACE, *options)
        assert done.returncode == 0, done.stderr
        return rows(done.stdout)

    yield get
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def rows(printed: str) -> list[Row]:
    """Cells begin where their column's name does."""
    head, *lines = printed.splitlines()
    starts = [found.start() for found in re.finditer(r"(?:(?<=  )|^)\S", head)]
    cuts = list(zip(starts, [*starts[1:], None], strict=True))
    names = [head[a:b].strip() for a, b in cuts]
    cells = ([AGE.sub("AGE", line[a:b].strip()) if i in _ages(names) else line[a:b].strip()
              for i, (a, b) in enumerate(cuts)] for line in lines)  # fmt: skip
    return [dict(zip(names, row, strict=True)) for row in cells]


def _ages(names: list[str]) -> set[int]:
    return {i for i, name in enumerate(names) if name in ("AGE", "STARTED", "LAST")}


def job_row(name: str, phase: str, ready: str, reason: str, started: str = "", duration: str = "") -> Row:
    why = {"STATUS": phase, "MODE": "Collective", "READY": ready, "REASON": reason}
    return {"NAME": name, **why, "STARTED": started, "DURATION": duration, "AGE": "AGE"}


JOBS = [
    job_row("done", "Completed", "0/2", "Completed", "AGE", "3m20s"),
    job_row("running", "Running", "2/2", "AllPodsRunning", "AGE"),
    job_row("waiting", "Pending", "0/2", "SampleSetNotFound"),
]


@pytest.mark.parametrize("name", ["pdj", "paddlejobs", "paddlejob"])
def test_jobs_show_how_far_they_are_and_why(name: str, table: Callable[..., list[Row]]) -> None:
    assert table(name) == JOBS


def test_wide_adds_progress_and_message(table: Callable[..., list[Row]]) -> None:
    said = {"done": "", "running": "", "waiting": "create it"}
    done = {"done": "", "running": "42%", "waiting": ""}
    assert table("pdj", "-o", "wide") == [
        {**row, "PROGRESS": done[row["NAME"]], "MESSAGE": said[row["NAME"]]} for row in JOBS
    ]


@pytest.mark.parametrize("name", ["sset", "samplesets"])
def test_a_rejected_set_shows_phase_and_reason(name: str, table: Callable[..., list[Row]]) -> None:
    figures = dict.fromkeys(("TOTAL SIZE", "CACHED SIZE", "AVAIL SPACE", "RUNTIME"), "")
    row = {"NAME": "rejected", **figures, "PHASE": "NotBound", "REASON": "SecretNotFound", "AGE": "AGE"}
    assert table(name) == [row]
    assert table(name, "-o", "wide") == [{**row, "MESSAGE": "create the Secret"}]


@pytest.mark.parametrize("name", ["sjob", "samplejobs"])
def test_an_operation_shows_its_set_type_and_percent(name: str, table: Callable[..., list[Row]]) -> None:
    row = {"NAME": "warming", "PHASE": "Running", "SET": "set", "TYPE": "warmup", "DONE": "42%"}
    assert table(name) == [{**row, "REASON": "Running", "AGE": "AGE"}]


@pytest.mark.parametrize("name", ["trg", "triggers"])
def test_a_trigger_shows_what_it_did_and_what_keeps_it(name: str, table: Callable[..., list[Row]]) -> None:
    counts = {"FIRED": "3", "ACTIVE": "1", "WAITING": "4", "LAST": ""}
    row = {"NAME": "blocked", "READY": "True", "REASON": "BusUnavailable", **counts, "AGE": "AGE"}
    assert table(name) == [row]
    wide = {"CREATED": "warm-x", "SKIPPED": "2", "NEXT": "", "MESSAGE": "no answer"}
    assert table(name, "-o", "wide") == [{**row, **wide}]


@pytest.mark.parametrize("name", ["psvc", "paddleservices"])
def test_a_service_shows_where_it_is_and_who_gets_the_requests(
    name: str, table: Callable[..., list[Row]]
) -> None:
    shares = {"TRAFFIC": "digits-a=95 digits-b=5", "REASON": "Stepping", "AGE": "AGE"}
    row = {"NAME": "digits", "URL": "http://digits.example.com", "READY": "True", **shares}
    assert table(name) == [row]
    wide = {"MODE": "Kubernetes", "REPLICAS": "2", "MESSAGE": "is watched"}
    assert table(name, "-o", "wide") == [{**row, **wide}]


def test_the_category_shows_all_kinds(kubectl: Callable[..., Any], table: Callable[..., list[Row]]) -> None:
    named = kubectl("get", "paddle", "-n", NAMESPACE, "-o", "name").stdout.split()
    assert sorted(named) == [
        "paddlejob.batch.paddlepaddle.org/done",
        "paddlejob.batch.paddlepaddle.org/running",
        "paddlejob.batch.paddlepaddle.org/waiting",
        "paddleservice.elasticserving.paddlepaddle.org/digits",
        "samplejob.batch.paddlepaddle.org/warming",
        "sampleset.batch.paddlepaddle.org/rejected",
        "trigger.events.paddlepaddle.org/blocked",
    ]
