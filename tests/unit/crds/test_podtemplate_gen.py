"""From the API server's OpenAPI document to the schema of templates."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from paddlewheel.contracts.crds import podtemplate, podtemplate_gen
from paddlewheel.contracts.crds.podtemplate_gen import main, pod_spec
from paddlewheel.contracts.crds.quantity import QUANTITY_SCHEMA

CORE, META = "io.k8s.api.core.v1", "io.k8s.apimachinery.pkg"


def to(name: str, **more: Any) -> dict[str, Any]:
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], **more}


DOCUMENT = {
    "info": {"version": "v1.99.0"},
    "components": {
        "schemas": {
            f"{CORE}.PodSpec": {
                "type": "object",
                "description": "Of a pod.",
                "required": ["containers"],
                "properties": {
                    "containers": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "items": to(f"{CORE}.Container", default={}),
                    },
                    "ephemeralContainers": {"type": "array", "items": to(f"{CORE}.Container")},
                    "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
                    "restartPolicy": {"type": "string", "default": "Always", "enum": ["Always", "Never"]},
                },
            },
            f"{CORE}.Container": {
                "type": "object",
                "properties": {
                    "port": {"$ref": f"#/components/schemas/{META}.util.intstr.IntOrString"},
                    "size": to(f"{META}.api.resource.Quantity", description="Of the disk."),
                    "metadata": to(f"{META}.apis.meta.v1.ObjectMeta"),
                    "seconds": {"type": "integer", "format": "int64", "default": 0},
                },
            },
        }
    },
}
SPEC = {
    "type": "object",
    "required": ["containers"],
    "properties": {
        "containers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "port": {"x-kubernetes-int-or-string": True},
                    "size": QUANTITY_SCHEMA,
                    "metadata": podtemplate.METADATA_SCHEMA,
                    "seconds": {"type": "integer", "format": "int64"},
                },
            },
        },
        "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
        "restartPolicy": {"type": "string"},
    },
}


def test_types_and_required_fields_are_kept_and_nothing_else() -> None:
    assert pod_spec(DOCUMENT) == {"kubernetes": "v1.99.0", "spec": SPEC}


def test_a_check_names_both_versions_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = tmp_path / "pod_spec.json"
    for module in (podtemplate, podtemplate_gen):
        monkeypatch.setattr(module, "POD_SPEC_FILE", recorded)
    assert main([], io.StringIO(json.dumps(DOCUMENT))) == 0
    assert json.loads(recorded.read_text())["spec"] == SPEC
    assert main(["--check"], io.StringIO(json.dumps(DOCUMENT))) == 0
    newer = json.loads(json.dumps(DOCUMENT).replace("v1.99.0", "v2.0.0").replace("restartPolicy", "restart"))
    assert main(["--check"], io.StringIO(json.dumps(newer))) == 1
    assert "is of Kubernetes v1.99.0, the API server of v2.0.0" in capsys.readouterr().err
    assert json.loads(recorded.read_text())["kubernetes"] == "v1.99.0"


def test_a_template_needs_containers_with_names_that_stand_once() -> None:
    fields = podtemplate.pod_template_schema()["properties"]["spec"]["properties"]
    assert (fields["containers"]["minItems"], fields["containers"]["maxItems"]) == (1, 128)
    for name in ("containers", "initContainers", "volumes"):
        assert fields[name]["x-kubernetes-list-map-keys"] == ["name"]
        assert fields[name]["items"]["required"] == ["name"]
