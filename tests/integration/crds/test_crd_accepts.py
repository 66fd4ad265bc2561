"""The API server accepts what the original accepted and ran, and stores it as the controllers expect it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.crds.api import Api, Object, each, make

from paddlewheel.contracts.crds import (
    parse_paddle_job_spec,
    parse_paddle_service_spec,
    parse_sample_job_spec,
    parse_sample_set_spec,
)

MANIFESTS = Path(__file__).parent / "manifests"
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "manifests"
PARSERS = {
    "PaddleJob": parse_paddle_job_spec,
    "SampleSet": parse_sample_set_spec,
    "SampleJob": parse_sample_job_spec,
    "PaddleService": parse_paddle_service_spec,
}


def documents(folder: Path) -> dict[str, Object]:
    """All manifests of a folder; those without a namespace are for `default`, as with kubectl."""
    found = {
        f"{path.stem} {document['kind']} {document['metadata']['name']}": document
        for path in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    }
    for document in found.values():
        document["metadata"].setdefault("namespace", "default")
    return found


@pytest.fixture
async def team_a(api: Api) -> None:
    """The namespace of the manifests, which tests on other workers may use as well."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
    created = await api.send(namespace, keep=True)
    assert created.status.get("reason", "AlreadyExists") == "AlreadyExists", created.error


def without(value: Any, name: str) -> Any:
    return {k: v for k, v in value.items() if k != name}


@pytest.mark.usefixtures("team_a")
async def test_every_published_manifest_is_accepted_and_parses(api: Api) -> None:
    async def check(document: Object) -> None:
        answer = await api.send(document)
        assert answer.error == ""
        PARSERS[document["kind"]](answer.stored)
        expected = without(document["spec"], "cleanPolicy")
        stored = answer.stored["spec"]
        if document["metadata"]["name"] == "filled-later":
            assert stored["csi"].pop("driver") == "juicefs"
        if document["metadata"]["name"] == "imagenet-warmup-names":
            assert stored["warmupOptions"].pop("strategyName") == "sequence"
        if document["kind"] == "PaddleService":
            assert stored.pop("mode") == "Auto"
            assert stored.pop("revisionHistoryLimit") == 5
            asked = expected.get("service", {})
            filled = {name: value for name, value in stored.pop("service", {}).items() if name in asked}
            stored |= {"service": filled} if asked else {}
        assert stored == expected

    await each(documents(MANIFESTS), check)


@pytest.mark.usefixtures("team_a")
async def test_every_example_of_the_reference_is_accepted_and_no_field_is_unknown(api: Api) -> None:
    async def check(document: Object) -> None:
        assert (await api.send(document, validation="Strict")).error == ""

    await each(documents(REFERENCE), check)


async def test_unknown_fields_are_pruned_with_a_warning(api: Api) -> None:
    rows = {
        "spec.cleanPolicy": "PaddleJob",
        "spec.worker.replica": "PaddleJob",
        "spec.worker.template.metadata.generateName": "PaddleJob",
        "spec.worker.template.spec.restart": "PaddleJob",
        "spec.schedule": "SampleSet",
        "spec.csi.juiceFSMountOptions.no-such": "SampleSet",
        "spec.sampleset": "SampleJob",
    }

    async def check(row: tuple[str, str]) -> None:
        path, kind = row
        answer = await api.send(make(kind, {path: "x"}))
        assert f'unknown field "{path}"' in answer.warnings
        assert f'"{path.rsplit(".", 1)[1]}"' not in json.dumps(answer.stored["spec"])

    await each({row[0]: row for row in rows.items()}, check)


async def test_pod_fields_that_no_controller_reads_are_stored(api: Api) -> None:
    spec = {
        "containers": [{"name": "main", "image": "x", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}],
        "shareProcessNamespace": True,
    }
    answer = await api.send(make("PaddleJob", {"spec.worker.template": {"spec": spec}}))
    assert answer.stored["spec"]["worker"]["template"]["spec"] == spec


async def test_status_of_every_kind_keeps_what_controllers_write(api: Api) -> None:
    at = "2024-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": at}
    common = {
        "observedGeneration": 1,
        "conditions": [{**condition, "observedGeneration": 1}],
        "announcements": [{"fact": "JobRunning", "attempt": 0, "at": at, "announced": True}],
    }
    own: dict[str, Object] = {
        "PaddleJob": {"phase": "Running", "mode": "PS", "startTime": at, "results": {"accuracy": 0.97}},
        "SampleSet": {"phase": "Ready", "runtimeStatus": {"runtimeReady": "1/1", "specReplicas": 1}},
        "SampleJob": {"phase": "Running", "jobName": "u", "progress": {"filesDone": 3, "cachedPercent": 1.5}},
    }

    async def check(row: tuple[str, Object]) -> None:
        kind, status = row
        async with api.kept(make(kind)) as stored:
            answer = await api.patch(stored, {"status": {**common, **status}}, subresource="status")
        assert answer.error == ""
        assert answer.stored["status"] == {**common, **status}

    await each({row[0]: row for row in own.items()}, check)
