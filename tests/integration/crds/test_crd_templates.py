"""Pod templates have the schema of Kubernetes' own pods: what a Pod would refuse to know, they do too."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddlewheel.contracts.crds.podtemplate_gen import NEVER_IN_TEMPLATES, main

Object = dict[str, Any]
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))
POD_SPEC = "io.k8s.api.core.v1.PodSpec"
CONTAINER = {"name": "main", "image": "x"}
TRIGGER: Object = {
    "apiVersion": "events.paddlepaddle.org/v1alpha1",
    "kind": "Trigger",
    "metadata": {"name": "t", "namespace": "default"},
    "spec": {"when": {"fact": {"type": "paddlewheel.datasets.v1.SampleSetReady"}}},
}
MISSPELT: list[tuple[Object, str]] = [
    ({"containers": [{**CONTAINER, "imagee": "y"}]}, "containers[0].imagee"),
    ({"containers": [{**CONTAINER, "resources": {"limit": {"cpu": 1}}}]}, "containers[0].resources.limit"),
    ({"containers": [{**CONTAINER, "env": [{"name": "A", "valeu": "b"}]}]}, "containers[0].env[0].valeu"),
    ({"containers": [CONTAINER, {"name": "b", "image": "x", "arg": []}]}, "containers[1].arg"),
    ({"containers": [CONTAINER], "initContainer": []}, "initContainer"),
    ({"containers": [CONTAINER], "initContainers": [{**CONTAINER, "tty2": True}]}, "initContainers[0].tty2"),
    ({"containers": [CONTAINER], "nodeselector": {"gpu": "a100"}}, "nodeselector"),
    ({"containers": [CONTAINER], "volumes": [{"name": "v", "emptydir": {}}]}, "volumes[0].emptydir"),
    ({"containers": [CONTAINER], "affinity": {"podAntiAfinity": {}}}, "affinity.podAntiAfinity"),
    ({"containers": [CONTAINER], "tolerations": [{"key": "a", "efect": "b"}]}, "tolerations[0].efect"),
]  # fmt: skip


@pytest.fixture
def refusal(kubectl: Callable[..., Any]) -> Callable[[Object], str]:
    """What `kubectl create` says, with its default of strict validation."""

    def said(manifest: Object) -> str:
        done = kubectl("create", "-f", "-", "--dry-run=server", stdin=json.dumps(manifest))
        return "" if done.returncode == 0 else done.stderr

    return said


def trigger_with(job: Object) -> Object:
    return {**TRIGGER, "spec": {**TRIGGER["spec"], "create": {"paddleJob": {"spec": job["spec"]}}}}


@pytest.mark.parametrize(("spec", "field"), MISSPELT, ids=[field for _, field in MISSPELT])
def test_a_misspelt_field_is_refused_as_in_a_pod(
    spec: Object, field: str, refusal: Callable[[Object], str], make: Callable[..., Object]
) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    assert f'unknown field "spec.{field}"' in refusal(pod)
    job = make("PaddleJob", {"spec.worker.template.spec": spec})
    assert f'unknown field "spec.worker.template.spec.{field}"' in refusal(job)
    created = f"spec.create.paddleJob.spec.worker.template.spec.{field}"
    assert f'unknown field "{created}"' in refusal(trigger_with(job))


@pytest.mark.parametrize("role", ["ps", "worker", "heter"])
def test_the_template_of_every_role_is_checked(
    role: str, refusal: Callable[[Object], str], make: Callable[..., Object]
) -> None:
    template = {"metadata": {"label": {"a": "b"}}, "spec": {"containers": [{**CONTAINER, "imagee": "y"}]}}
    said = refusal(make("PaddleJob", {"spec": {role: {"replicas": 1, "template": template}}}))
    assert f'unknown field "spec.{role}.template.spec.containers[0].imagee"' in said
    assert f'unknown field "spec.{role}.template.metadata.label"' in said


def test_without_strictness_the_client_is_warned(
    send: Callable[..., Any], make: Callable[..., Object]
) -> None:
    answer = send(make("PaddleJob", {"spec.worker.template.spec.nodeselector": {"gpu": "a100"}}))
    assert answer.error == ""
    assert answer.warnings == ('unknown field "spec.worker.template.spec.nodeselector"',)
    assert "nodeselector" not in answer.stored["spec"]["worker"]["template"]["spec"]


def test_every_field_of_a_pod_is_known(
    kubectl: Callable[..., Any], send: Callable[..., Any], make: Callable[..., Object]
) -> None:
    schemas = json.loads(kubectl("get", "--raw", "/openapi/v3/api/v1").stdout)["components"]["schemas"]
    spec = example(schemas[POD_SPEC], schemas)
    for field in NEVER_IN_TEMPLATES:
        del spec[field]
    answer = send(make("PaddleJob", {"spec.worker.template.spec": spec}))
    assert (answer.error, answer.warnings) == ("", ())
    assert answer.stored["spec"]["worker"]["template"]["spec"] == spec


def example(node: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """A value with every field that the schema knows."""
    [found] = node.get("allOf") or [node]
    if target := str(found.get("$ref", "")).rsplit("/", 1)[-1]:
        if target.endswith("ObjectMeta"):
            return {"labels": {"a": "b"}, "annotations": {"a": "b"}}
        if target.endswith("Quantity"):
            return "1Gi"
        return example(schemas[target], schemas)
    if "oneOf" in node:
        return 8080
    match node.get("type"):
        case "object" if "properties" in node:
            return {name: example(sub, schemas) for name, sub in node["properties"].items()}
        case "object":
            return {"key": example(node["additionalProperties"], schemas)}
        case "array":
            return [example(node["items"], schemas)]
        case "integer":
            return 1
        case "boolean":
            return True
    return "text"


def test_nulls_count_as_absent(send: Callable[..., Any], make: Callable[..., Object]) -> None:
    nulls = {"env": None, "resources": None, "livenessProbe": None, "command": None}
    spec = {"containers": [{**CONTAINER, **nulls}], "volumes": None, "nodeSelector": None, "affinity": None}
    answer = send(make("PaddleJob", {"spec.worker.template.spec": spec}))
    assert (answer.error, answer.warnings) == ("", ())
    assert answer.stored["spec"]["worker"]["template"]["spec"] == {"containers": [CONTAINER]}


def documents() -> Iterator[Any]:
    for path in EXAMPLES:
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if "paddlepaddle.org" in document["apiVersion"]:
                yield pytest.param(document, id=f"{path.parent.name}/{path.name}")


@pytest.mark.parametrize("document", list(documents()))
def test_every_example_passes_the_strict_validation(
    document: Object, refusal: Callable[[Object], str]
) -> None:
    document["metadata"]["namespace"] = "default"
    assert refusal(document) == ""


def test_the_recorded_schema_is_that_of_this_kubernetes(
    kubectl: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    document = kubectl("get", "--raw", "/openapi/v3/api/v1").stdout
    assert main(["--check"], io.StringIO(document)) == 0, capsys.readouterr().err
