"""Which fields of jobs that exist may change, and that `kubectl scale` scales the workers of a PaddleJob."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest

SET = {"name": "set", "mountPath": "/data"}
SUSPEND_FIRST = "suspend the job first (spec.suspend: true)"

Object = dict[str, Any]
Make = Callable[..., Object]


@pytest.fixture
def stored(send: Callable[..., Any], make: Make, kubectl: Callable[..., Any]) -> Iterator[Make]:
    """Create a PaddleJob with these fields; it is deleted after the test. Others use the namespace, too."""
    with ExitStack() as after:

        def create(prefix: str, **spec: Any) -> Object:
            name = f"{prefix}-{uuid4().hex[:6]}"
            fields = {f"spec.{field}": value for field, value in spec.items()}
            answer = send(make("PaddleJob", {"metadata.name": name, **fields}), keep=True)
            assert answer.error == ""
            after.callback(kubectl, "delete", "paddlejob", name, "-n", "default")
            return dict(answer.stored)

        yield create


CHANGES = [
    pytest.param("intranet", None, "Host", id="intranet is given"),
    pytest.param("intranet", "Service", "PodIP", id="intranet is another"),
    pytest.param("intranet", "Service", None, id="intranet is taken away"),
    pytest.param("elastic", None, 1, id="elastic is given"),
    pytest.param("elastic", 1, 0, id="elastic is another"),
    pytest.param("elastic", 1, None, id="elastic is taken away"),
    pytest.param("withGloo", None, 1, id="withGloo is given"),
    pytest.param("withGloo", 1, 2, id="withGloo is another"),
    pytest.param("withGloo", 1, None, id="withGloo is taken away"),
    pytest.param("sampleSetRef", None, SET, id="sampleSetRef is given"),
    pytest.param("sampleSetRef", SET, {"mountPath": "/other"}, id="sampleSetRef is mounted elsewhere"),
    pytest.param("sampleSetRef", SET, {"name": "other"}, id="sampleSetRef is another"),
    pytest.param("sampleSetRef", SET, None, id="sampleSetRef is taken away"),
]
"""A field, its value, and a merge patch of it."""


@pytest.mark.parametrize(("field", "before", "after"), CHANGES)
@pytest.mark.parametrize("suspends", [False, True], ids=["alone", "with the suspension"])
def test_what_pods_depend_on_cannot_change_under_them(
    field: str, before: Any, after: Any, suspends: bool, stored: Make, patch: Callable[..., Any]
) -> None:
    job = stored("fixed", **{field: before})
    refused = patch(job, {"spec": {field: after, **({"suspend": True} if suspends else {})}})
    assert refused.stored == {}
    assert f"spec.{field}: Invalid value" in refused.error
    assert f"{field} cannot be changed: {SUSPEND_FIRST}" in refused.error


@pytest.mark.parametrize(("field", "before", "after"), CHANGES)
def test_a_suspended_job_may_change_them_also_while_it_is_resumed(
    field: str, before: Any, after: Any, stored: Make, patch: Callable[..., Any]
) -> None:
    job = stored("free", suspend=True, **{field: before})
    changed = patch(job, {"spec": {field: after, "suspend": False}})
    assert changed.error == ""
    wanted = {**(before or {}), **after} if isinstance(after, dict) else after
    assert changed.stored["spec"].get(field) == wanted


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, "kueue.x-k8s.io/multikueue"), ("a.example.com/b", "a.example.com/c"), ("a/b", None)],
)
@pytest.mark.parametrize("suspend", [False, True])
def test_the_controller_of_a_job_never_changes(
    before: str | None, after: str | None, suspend: bool, stored: Make, patch: Callable[..., Any]
) -> None:
    refused = patch(stored("managed", suspend=suspend, managedBy=before), {"spec": {"managedBy": after}})
    assert refused.stored == {}
    assert "spec.managedBy: Invalid value" in refused.error
    assert "managedBy cannot be changed: delete the job and create it again" in refused.error


@pytest.mark.parametrize(
    "change",
    [
        {"worker": {"replicas": 3}},
        {"suspend": True},
        {"backoffLimit": 3},
        {"activeDeadlineSeconds": 60},
        {"ttlSecondsAfterFinished": 0},
        {"cleanPodPolicy": "Never"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_else_may_change_while_the_job_runs(
    change: Object, stored: Make, patch: Callable[..., Any]
) -> None:
    job = stored("edited", intranet="Service", elastic=1, withGloo=1, sampleSetRef=SET, managedBy="a/b")
    changed = patch(job, {"spec": change})
    assert changed.error == ""
    assert changed.stored["spec"] != job["spec"]


def test_kubectl_scale_changes_the_workers_and_shows_how_many_run_and_how_to_find_them(
    stored: Make, patch: Callable[..., Any], kubectl: Callable[..., Any]
) -> None:
    job = stored("scaled")
    name = job["metadata"]["name"]
    selector = f"paddlepaddle.org/paddlejob={name},paddle-res-type=worker"
    patch(job, {"status": {"worker": {"running": 1}, "selector": selector}}, subresource="status")
    done = kubectl("scale", "paddlejob", name, "--replicas=3", "-n", "default")
    assert done.returncode == 0, done.stderr
    shown = kubectl("get", "pdj", name, "-n", "default", "--subresource=scale", "-o", "json")
    scale = json.loads(shown.stdout)
    # A HorizontalPodAutoscaler finds the pods that it measures by the selector.
    assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 1, "selector": selector})
    spec = json.loads(kubectl("get", "pdj", name, "-n", "default", "-o", "json").stdout)["spec"]
    assert spec == {**job["spec"], "worker": {**job["spec"]["worker"], "replicas": 3}}


def test_kubectl_scale_obeys_the_rules_of_the_job(stored: Make, kubectl: Callable[..., Any]) -> None:
    name = stored("s" * 46)["metadata"]["name"]
    assert len(name) == 53
    refused = kubectl("scale", "paddlejob", name, "--replicas=101", "-n", "default")
    assert refused.returncode == 1
    assert "metadata.name is too long: the last pod, <name>-worker-<replicas - 1>" in refused.stderr
    too_many = kubectl("scale", "paddlejob", name, "--replicas=10001", "-n", "default")
    assert "less than or equal to 10000" in too_many.stderr


def test_kubectl_scale_gives_no_workers_to_a_job_that_has_none(
    stored: Make, make: Make, kubectl: Callable[..., Any]
) -> None:
    name = stored("servers", worker=None, ps=make("PaddleJob")["spec"]["worker"])["metadata"]["name"]
    refused = kubectl("scale", "paddlejob", name, "--replicas=2", "-n", "default")
    assert refused.returncode == 1
    assert "spec.worker.template.spec.containers: Required value" in refused.stderr


# SampleJobs

WORK = [
    pytest.param({"sampleSetRef": {"name": "other"}}, "sampleSetRef", id="another set"),
    pytest.param({"type": "clear"}, "type", id="another type"),
    pytest.param({"rmrOptions": {"paths": ["other"]}}, "rmrOptions", id="other options"),
    pytest.param({"warmupOptions": {"threads": 2}}, "warmupOptions", id="options are given"),
]


@pytest.fixture
def removal(
    send: Callable[..., Any], make: Make, patch: Callable[..., Any], kubectl: Callable[..., Any]
) -> Iterator[Make]:
    """Create a SampleJob of type rmr with this status."""
    with ExitStack() as after:

        def create(**status: Any) -> Object:
            work = {"spec.type": "rmr", "spec.rmrOptions": {"paths": ["old"]}}
            name = f"work-{uuid4().hex[:6]}"
            made = send(make("SampleJob", {"metadata.name": name, **work}), keep=True)
            assert made.error == ""
            after.callback(kubectl, "delete", "samplejob", name, "-n", "default")
            recorded = patch(made.stored, {"status": status}, subresource="status")
            assert recorded.error == ""
            return dict(recorded.stored)

        yield create


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize(("change", "field"), WORK)
def test_the_work_of_a_run_that_goes_on_cannot_be_changed(
    phase: str, change: Object, field: str, removal: Make, patch: Callable[..., Any]
) -> None:
    refused = patch(removal(phase=phase, jobName="run"), {"spec": change})
    assert refused.stored == {}
    assert f"spec.{field}: Invalid value" in refused.error
    assert f"{field} cannot be changed while the run goes on: wait for its end, or delete" in refused.error


@pytest.mark.parametrize(
    "status",
    [{"phase": "Pending"}, {"phase": "Failed", "jobName": "run"}, {"phase": "Succeeded", "jobName": "run"}],
    ids=["waits", "has failed", "has succeeded"],
)
@pytest.mark.parametrize(("change", "field"), WORK)
def test_work_that_does_not_go_on_may_be_changed(
    status: Object, change: Object, field: str, removal: Make, patch: Callable[..., Any]
) -> None:
    changed = patch(removal(**status), {"spec": change})
    assert changed.error == ""
    stored = changed.stored["spec"][field]
    assert stored == (change[field] if isinstance(change[field], str) else {**stored, **change[field]})


def test_what_does_not_select_the_work_may_be_changed_while_it_goes_on(
    removal: Make, patch: Callable[..., Any]
) -> None:
    job = removal(phase="Running", jobName="run")
    changed = patch(job, {"spec": {"ttlSecondsAfterFinished": 5, "priority": 3}})
    assert changed.error == ""
    ended = patch(job, {"status": {"phase": "Succeeded"}}, subresource="status")
    assert ended.error == ""
