"""Pod templates have the schema of Kubernetes' own pods: what a Pod would refuse to know, they do too."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.crds.api import Api, Object, each, make

from paddlewheel.contracts.crds.podtemplate_gen import NEVER_IN_TEMPLATES, main

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))
POD_SPEC = "io.k8s.api.core.v1.PodSpec"
CONTAINER = {"name": "main", "image": "x"}
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


async def refusal(api: Api, manifest: Object) -> str:
    """The error under strict validation, which kubectl asks for by default."""
    return (await api.send(manifest, validation="Strict")).error


async def test_a_misspelt_field_is_refused_as_in_a_pod(api: Api) -> None:
    async def check(row: tuple[Object, str]) -> None:
        spec, field = row
        metadata = {"name": "p", "namespace": "default"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        assert f'unknown field "spec.{field}"' in await refusal(api, pod)
        job = make("PaddleJob", {"spec.worker.template.spec": spec})
        assert f'unknown field "spec.worker.template.spec.{field}"' in await refusal(api, job)
        trigger = make("Trigger", {"spec.create": {"paddleJob": {"spec": job["spec"]}}})
        created = f"spec.create.paddleJob.spec.worker.template.spec.{field}"
        assert f'unknown field "{created}"' in await refusal(api, trigger)

    await each({field: (spec, field) for spec, field in MISSPELT}, check)


async def test_the_template_of_every_role_is_checked(api: Api) -> None:
    template = {"metadata": {"label": {"a": "b"}}, "spec": {"containers": [{**CONTAINER, "imagee": "y"}]}}

    async def check(role: str) -> None:
        job = make("PaddleJob", {"spec": {role: {"replicas": 1, "template": template}}})
        refused = await refusal(api, job)
        assert f'unknown field "spec.{role}.template.spec.containers[0].imagee"' in refused
        assert f'unknown field "spec.{role}.template.metadata.label"' in refused

    await each({role: role for role in ("ps", "worker", "heter")}, check)


async def test_without_strictness_the_client_is_warned(api: Api) -> None:
    answer = await api.send(make("PaddleJob", {"spec.worker.template.spec.nodeselector": {"gpu": "a100"}}))
    assert answer.error == ""
    assert answer.warnings == ('unknown field "spec.worker.template.spec.nodeselector"',)
    assert "nodeselector" not in answer.stored["spec"]["worker"]["template"]["spec"]


async def pod_document(api: Api) -> Object:
    """The OpenAPI document of the core group."""
    return (await api.ask("GET", "/openapi/v3/api/v1")).stored


async def test_every_field_of_a_pod_is_known(api: Api) -> None:
    schemas = (await pod_document(api))["components"]["schemas"]
    spec = example(schemas[POD_SPEC], schemas)
    for field in NEVER_IN_TEMPLATES:
        del spec[field]
    answer = await api.send(make("PaddleJob", {"spec.worker.template.spec": spec}))
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


async def test_nulls_count_as_absent(api: Api) -> None:
    nulls = {"env": None, "resources": None, "livenessProbe": None, "command": None}
    spec = {"containers": [{**CONTAINER, **nulls}], "volumes": None, "nodeSelector": None, "affinity": None}
    answer = await api.send(make("PaddleJob", {"spec.worker.template.spec": spec}))
    assert (answer.error, answer.warnings) == ("", ())
    assert answer.stored["spec"]["worker"]["template"]["spec"] == {"containers": [CONTAINER]}


async def test_every_example_passes_the_strict_validation(api: Api) -> None:
    async def check(document: Object) -> None:
        metadata = {**document["metadata"], "namespace": "default"}
        assert await refusal(api, {**document, "metadata": metadata}) == ""

    documents = {
        f"{path.parent.name}/{path.name} {number}": document
        for path in EXAMPLES
        for number, document in enumerate(yaml.safe_load_all(path.read_text(encoding="utf-8")))
        if "paddlepaddle.org" in document["apiVersion"]
    }
    await each(documents, check)


async def test_the_recorded_schema_is_that_of_this_kubernetes(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.dumps(await pod_document(api))
    assert main(["--check"], io.StringIO(document)) == 0, capsys.readouterr().err
