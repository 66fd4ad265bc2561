"""Which fields of existing jobs may change, and how `scale` changes the workers of a PaddleJob."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

from tests.integration.crds.api import Answer, Api, Object, each, make

SET = {"name": "set", "mountPath": "/data"}
SUSPEND_FIRST = "suspend the job first (spec.suspend: true)"

CHANGES: dict[str, tuple[str, Any, Any]] = {
    "intranet is given": ("intranet", None, "Host"),
    "intranet is another": ("intranet", "Service", "PodIP"),
    "intranet is taken away": ("intranet", "Service", None),
    "elastic is given": ("elastic", None, 1),
    "elastic is another": ("elastic", 1, 0),
    "elastic is taken away": ("elastic", 1, None),
    "withGloo is given": ("withGloo", None, 1),
    "withGloo is another": ("withGloo", 1, 2),
    "withGloo is taken away": ("withGloo", 1, None),
    "sampleSetRef is given": ("sampleSetRef", None, SET),
    "sampleSetRef is mounted elsewhere": ("sampleSetRef", SET, {"mountPath": "/other"}),
    "sampleSetRef is another": ("sampleSetRef", SET, {"name": "other"}),
    "sampleSetRef is taken away": ("sampleSetRef", SET, None),
}
"""A field, its value, and a merge patch of it."""


def job(**spec: Any) -> Object:
    return make("PaddleJob", {f"spec.{field}": value for field, value in spec.items()})


async def test_what_pods_depend_on_cannot_change_under_them(api: Api) -> None:
    async def check(row: tuple[str, Any, Any]) -> None:
        field, before, after = row
        async with api.kept(job(**{field: before})) as stored:
            for suspension in ({}, {"suspend": True}):
                refused = await api.patch(stored, {"spec": {field: after, **suspension}})
                assert refused.stored == {}, suspension
                assert f"spec.{field}: Invalid value" in refused.error
                assert f"{field} cannot be changed: {SUSPEND_FIRST}" in refused.error

    await each(CHANGES, check)


async def test_a_suspended_job_may_change_them_also_while_it_is_resumed(api: Api) -> None:
    async def check(row: tuple[str, Any, Any]) -> None:
        field, before, after = row
        async with api.kept(job(suspend=True, **{field: before})) as stored:
            changed = await api.patch(stored, {"spec": {field: after, "suspend": False}})
        assert changed.error == ""
        wanted = {**(before or {}), **after} if isinstance(after, dict) else after
        assert changed.stored["spec"].get(field) == wanted

    await each(CHANGES, check)


async def test_the_controller_of_a_job_never_changes(api: Api) -> None:
    changes = [(None, "kueue.x-k8s.io/multikueue"), ("a.example.com/b", "a.example.com/c"), ("a/b", None)]

    async def check(row: tuple[bool, tuple[str | None, str | None]]) -> None:
        suspend, (before, after) = row
        async with api.kept(job(suspend=suspend, managedBy=before)) as stored:
            refused = await api.patch(stored, {"spec": {"managedBy": after}})
        assert refused.stored == {}
        assert "spec.managedBy: Invalid value" in refused.error
        assert "managedBy cannot be changed: delete the job and create it again" in refused.error

    await each({str(row): row for row in product((False, True), changes)}, check)


async def test_everything_else_may_change_while_the_job_runs(api: Api) -> None:
    changes: dict[str, Any] = {
        "worker": {"replicas": 3},
        "suspend": True,
        "backoffLimit": 3,
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 0,
        "cleanPodPolicy": "Never",
    }
    running = job(intranet="Service", elastic=1, withGloo=1, sampleSetRef=SET, managedBy="a/b")

    async def check(row: tuple[str, Any]) -> None:
        async with api.kept(running) as stored:
            changed = await api.patch(stored, {"spec": dict([row])})
        assert changed.error == ""
        assert changed.stored["spec"] != stored["spec"]

    await each({field: (field, value) for field, value in changes.items()}, check)


async def scaled(api: Api, stored: Object, replicas: int) -> Answer:
    """The answer to what `kubectl scale` sends."""
    return await api.patch(stored, {"spec": {"replicas": replicas}}, subresource="scale")


async def test_scale_changes_the_workers_and_shows_how_many_run_and_how_to_find_them(api: Api) -> None:
    async with api.kept(job()) as stored:
        selector = f"paddlepaddle.org/paddlejob={stored['metadata']['name']},paddle-res-type=worker"
        status = {"worker": {"running": 1}, "selector": selector}
        await api.patch(stored, {"status": status}, subresource="status")
        assert (await scaled(api, stored, 3)).error == ""
        scale = (await api.get(stored, subresource="scale")).stored
        # A HorizontalPodAutoscaler finds the pods that it measures by the selector.
        assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 1, "selector": selector})
        spec = (await api.get(stored)).stored["spec"]
        assert spec == {**stored["spec"], "worker": {**stored["spec"]["worker"], "replicas": 3}}


async def test_scale_obeys_the_rules_of_the_job(api: Api) -> None:
    async with api.kept(make("PaddleJob", {"metadata.name": "s" * 46})) as stored:
        assert len(stored["metadata"]["name"]) == 53
        refused = await scaled(api, stored, 101)
        assert "metadata.name is too long: the last pod, <name>-worker-<replicas - 1>" in refused.error
        too_many = await scaled(api, stored, 10001)
        assert "less than or equal to 10000" in too_many.error


async def test_scale_gives_no_workers_to_a_job_that_has_none(api: Api) -> None:
    async with api.kept(job(worker=None, ps=job()["spec"]["worker"])) as stored:
        refused = await scaled(api, stored, 2)
    assert "spec.worker.template.spec.containers: Required value" in refused.error


# SampleJobs

WORK: dict[str, Any] = {
    "sampleSetRef": {"name": "other"},
    "type": "clear",
    "rmrOptions": {"paths": ["other"]},
    "warmupOptions": {"threads": 2},
}
"""Fields that select the work, and another value."""


@asynccontextmanager
async def removal(api: Api, **status: Any) -> AsyncIterator[Object]:
    """A SampleJob of type rmr with this status while the block runs."""
    manifest = make("SampleJob", {"spec.type": "rmr", "spec.rmrOptions": {"paths": ["old"]}})
    async with api.kept(manifest) as stored:
        recorded = await api.patch(stored, {"status": status}, subresource="status")
        assert recorded.error == ""
        yield recorded.stored


async def test_the_work_of_a_run_that_goes_on_cannot_be_changed(api: Api) -> None:
    async def check(row: tuple[str, str]) -> None:
        phase, field = row
        async with removal(api, phase=phase, jobName="run") as stored:
            refused = await api.patch(stored, {"spec": {field: WORK[field]}})
        assert refused.stored == {}
        assert f"spec.{field}: Invalid value" in refused.error
        assert f"{field} cannot be changed during the run: wait for its end, or delete" in refused.error

    await each({" ".join(row): row for row in product(("Pending", "Running"), WORK)}, check)


async def test_work_that_does_not_go_on_may_be_changed(api: Api) -> None:
    states = (
        {"phase": "Pending"},
        {"phase": "Failed", "jobName": "run"},
        {"phase": "Succeeded", "jobName": "run"},
    )

    async def check(row: tuple[dict[str, str], str]) -> None:
        status, field = row
        async with removal(api, **status) as stored:
            changed = await api.patch(stored, {"spec": {field: WORK[field]}})
        assert changed.error == ""
        found, wanted = changed.stored["spec"][field], WORK[field]
        assert found == (wanted if isinstance(wanted, str) else {**found, **wanted})

    await each({f"{row[0]['phase']} {row[1]}": row for row in product(states, WORK)}, check)


async def test_what_does_not_select_the_work_may_be_changed_while_it_goes_on(api: Api) -> None:
    async with removal(api, phase="Running", jobName="run") as stored:
        changed = await api.patch(stored, {"spec": {"ttlSecondsAfterFinished": 5, "priority": 3}})
        assert changed.error == ""
        ended = await api.patch(stored, {"status": {"phase": "Succeeded"}}, subresource="status")
        assert ended.error == ""
