"""What the original accepted and ran, the API server accepts, and stores as the controllers expect it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddlewheel.contracts.crds import (
    parse_paddle_job_spec,
    parse_paddle_service_spec,
    parse_sample_job_spec,
    parse_sample_set_spec,
)

MANIFESTS = Path(__file__).parent / "manifests"
DOCUMENTS = [
    pytest.param(document, id=f"{path.stem}-{document['kind']}-{document['metadata']['name']}")
    for path in sorted(MANIFESTS.glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "manifests"
EXAMPLES = [
    pytest.param(document, id=f"{document['kind']}-{document['metadata']['name']}")
    for path in sorted(REFERENCE.glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
PARSERS = {
    "PaddleJob": parse_paddle_job_spec,
    "SampleSet": parse_sample_set_spec,
    "SampleJob": parse_sample_job_spec,
    "PaddleService": parse_paddle_service_spec,
}


def without(value: Any, name: str) -> Any:
    return {k: v for k, v in value.items() if k != name}


@pytest.fixture
def team_a(kubectl: Callable[..., Any]) -> None:
    kubectl("create", "namespace", "team-a")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_published_manifest_is_accepted_and_parses(
    document: dict[str, Any], send: Callable[..., Any], team_a: None
) -> None:
    answer = send(document)
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


@pytest.mark.parametrize("document", EXAMPLES)
def test_every_example_of_the_reference_is_accepted_and_no_field_is_unknown(
    document: dict[str, Any], send: Callable[..., Any], team_a: None
) -> None:
    answer = send(document)
    assert answer.error == ""
    assert [warning for warning in answer.warnings if "unknown field" in warning] == []


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("PaddleJob", "spec.cleanPolicy"),
        ("PaddleJob", "spec.worker.replica"),
        ("PaddleJob", "spec.worker.template.metadata.generateName"),
        ("PaddleJob", "spec.worker.template.spec.restart"),
        ("SampleSet", "spec.schedule"),
        ("SampleSet", "spec.csi.juiceFSMountOptions.no-such"),
        ("SampleJob", "spec.sampleset"),
    ],
)
def test_unknown_fields_are_pruned_with_a_warning(
    kind: str, path: str, send: Callable[..., Any], make: Callable[..., Any]
) -> None:
    answer = send(make(kind, {path: "x"}))
    assert f'unknown field "{path}"' in answer.warnings
    assert f'"{path.rsplit(".", 1)[1]}"' not in json.dumps(answer.stored["spec"])


def test_pod_fields_that_no_controller_reads_are_stored(
    send: Callable[..., Any], make: Callable[..., Any]
) -> None:
    spec = {
        "containers": [{"name": "main", "image": "x", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}],
        "shareProcessNamespace": True,
    }
    answer = send(make("PaddleJob", {"spec.worker.template": {"spec": spec}}))
    assert answer.stored["spec"]["worker"]["template"]["spec"] == spec


def test_status_of_every_kind_keeps_what_controllers_write(
    send: Callable[..., Any], patch: Callable[..., Any], make: Callable[..., Any], kubectl: Callable[..., Any]
) -> None:
    at = "2024-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": at}
    common = {
        "observedGeneration": 1,
        "conditions": [{**condition, "observedGeneration": 1}],
        "announcements": [{"fact": "JobRunning", "attempt": 0, "at": at, "announced": True}],
    }
    own = {
        "PaddleJob": {"phase": "Running", "mode": "PS", "startTime": at, "results": {"accuracy": 0.97}},
        "SampleSet": {"phase": "Ready", "runtimeStatus": {"runtimeReady": "1/1", "specReplicas": 1}},
        "SampleJob": {"phase": "Running", "jobName": "u", "progress": {"filesDone": 3, "cachedPercent": 1.5}},
    }
    for kind, status in own.items():
        stored = send(make(kind, {"metadata.name": "with-status"}), keep=True).stored
        try:
            answer = patch(stored, {"status": {**common, **status}}, subresource="status")
            assert answer.error == ""
            assert answer.stored["status"] == {**common, **status}
        finally:
            kubectl("delete", kind.lower(), "with-status", "-n", "default")
