"""The columns and cells that the API server prints for `kubectl get`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import uuid4

import pytest
import yaml
from tests.integration.crds.api import OURS, Api, Object, each, make

from paddlewheel.kube.api import path_of
from paddlewheel.kube.ports import (
    PADDLE_JOBS,
    PADDLE_SERVICES,
    SAMPLE_JOBS,
    SAMPLE_SETS,
    TRIGGERS,
    Resource,
)

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
AGE = re.compile(r"(\d+[smhdy])+")
AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

Row = dict[str, str]


@pytest.fixture
async def namespace(api: Api) -> AsyncIterator[str]:
    """A namespace with the objects, each with its status."""
    async with AsyncExitStack() as ends:
        name = f"tables-{uuid4().hex[:6]}"
        about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        assert (await api.send(about, keep=True)).error == ""
        ends.push_async_callback(api.delete, about)
        for obj in yaml.safe_load(OBJECTS):
            manifest = {**make(obj["kind"]), "metadata": {**obj["metadata"], "namespace": name}}
            created = await api.send(manifest, keep=True)
            assert created.error == ""
            patched = await api.patch(created.stored, {"status": obj["status"]}, subresource="status")
            assert patched.error == ""
        yield name


async def table(api: Api, resource: Resource, namespace: str, *, wide: bool) -> list[Row]:
    """Cells by column as kubectl shows them; ages as `AGE`.

    Args:
        wide: with the columns of `-o wide`.
    """
    found = (await api.ask("GET", path_of(resource, namespace), accept=AS_TABLE)).stored
    return [
        {
            column["name"].upper(): cell_of(column, cell)
            for column, cell in zip(found["columnDefinitions"], row["cells"], strict=True)
            if wide or not column["priority"]
        }
        for row in found["rows"]
    ]


def cell_of(column: Object, cell: object) -> str:
    text = "" if cell is None else str(cell)
    return AGE.sub("AGE", text) if column["name"].upper() in ("AGE", "STARTED", "LAST") else text


def job_row(name: str, phase: str, ready: str, reason: str, started: str = "", duration: str = "") -> Row:
    why = {"STATUS": phase, "MODE": "Collective", "READY": ready, "REASON": reason}
    return {"NAME": name, **why, "STARTED": started, "DURATION": duration, "AGE": "AGE"}


ROWS: dict[Resource, list[tuple[Row, Row]]] = {
    PADDLE_JOBS: [
        (
            job_row("done", "Completed", "0/2", "Completed", "AGE", "3m20s"),
            {"PROGRESS": "", "MESSAGE": ""},
        ),
        (job_row("running", "Running", "2/2", "AllPodsRunning", "AGE"), {"PROGRESS": "42%", "MESSAGE": ""}),
        (job_row("waiting", "Pending", "0/2", "SampleSetNotFound"), {"PROGRESS": "", "MESSAGE": "create it"}),
    ],
    SAMPLE_SETS: [
        (
            {
                "NAME": "rejected",
                **dict.fromkeys(("TOTAL SIZE", "CACHED SIZE", "AVAIL SPACE", "RUNTIME"), ""),
                "PHASE": "NotBound",
                "REASON": "SecretNotFound",
                "AGE": "AGE",
            },
            {"MESSAGE": "create the Secret"},
        )
    ],
    SAMPLE_JOBS: [
        (
            {
                "NAME": "warming",
                "PHASE": "Running",
                "SET": "set",
                "TYPE": "warmup",
                "DONE": "42%",
                "REASON": "Running",
                "AGE": "AGE",
            },
            {"ETA": "", "MESSAGE": ""},
        )
    ],
    TRIGGERS: [
        (
            {
                "NAME": "blocked",
                "READY": "True",
                "REASON": "BusUnavailable",
                "FIRED": "3",
                "ACTIVE": "1",
                "WAITING": "4",
                "LAST": "",
                "AGE": "AGE",
            },
            {"CREATED": "warm-x", "SKIPPED": "2", "NEXT": "", "MESSAGE": "no answer"},
        )
    ],
    PADDLE_SERVICES: [
        (
            {
                "NAME": "digits",
                "URL": "http://digits.example.com",
                "READY": "True",
                "TRAFFIC": "digits-a=95 digits-b=5",
                "REASON": "Stepping",
                "AGE": "AGE",
            },
            {"MODE": "Kubernetes", "REPLICAS": "2", "MESSAGE": "is watched"},
        )
    ],
}
"""The columns that are always shown, and those of `-o wide`."""


async def test_every_kind_shows_its_state_and_the_reason(api: Api, namespace: str) -> None:
    async def check(resource: Resource) -> None:
        narrow = [row for row, _ in ROWS[resource]]
        assert await table(api, resource, namespace, wide=False) == narrow
        # A column of `-o wide` may be anywhere.
        wide = [row | more for row, more in ROWS[resource]]
        assert await table(api, resource, namespace, wide=True) == wide

    await each({resource.kind: resource for resource in OURS}, check)


async def test_every_kind_has_its_short_name_and_the_common_category(api: Api) -> None:
    short = {"PaddleJob": "pdj", "SampleSet": "sset", "SampleJob": "sjob", "Trigger": "trg"}
    short["PaddleService"] = "psvc"

    async def check(resource: Resource) -> None:
        found = (await api.ask("GET", f"/apis/{resource.api_version}")).stored["resources"]
        [names] = [each for each in found if each["name"] == resource.plural]
        assert names["singularName"] == resource.kind.lower()
        assert names["shortNames"] == [short[resource.kind]]
        assert "paddle" in names["categories"]

    await each({resource.kind: resource for resource in OURS}, check)
