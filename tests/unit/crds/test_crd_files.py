"""The generated files: stable, structural, and equal to the published names and columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddlewheel.contracts.crds import KINDS
from paddlewheel.contracts.crds.gen import main
from paddlewheel.contracts.crds.limits import PARTITIONS
from paddlewheel.contracts.crds.schema import crd

KIND_NAMES = [kind.kind for kind in KINDS]
GROUPS = (".batch.paddlepaddle.org", ".events.paddlepaddle.org", ".elasticserving.paddlepaddle.org")


@cache
def crds() -> dict[str, dict[str, Any]]:
    """The definition of each kind."""
    return {kind.kind: crd(kind) for kind in KINDS}


def version(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = crds()[kind]["spec"]["versions"][0]
    return found


def root(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = version(kind)["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema with its path."""
    yield path, schema
    for name, sub in schema.get("properties", {}).items():
        yield from nodes(sub, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


@pytest.mark.slow
def test_generation_is_stable_and_valid_yaml_and_check_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path)]) == 0
    assert main(["--check", "--out", str(tmp_path)]) == 0, "it is stable"
    for file in tmp_path.iterdir():
        documents = list(yaml.load_all(file.read_text(), yaml.CSafeLoader))
        assert all(document["metadata"]["name"].endswith(GROUPS) for document in documents)
    (tmp_path / "paddlejobs.yaml").write_text("old")
    (tmp_path / "warnings.yaml").unlink()
    assert main(["--check", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "paddlejobs.yaml" in said
    assert "warnings.yaml" in said
    assert (tmp_path / "paddlejobs.yaml").read_text() == "old"


def test_a_set_has_no_more_partitions_than_can_be_listed() -> None:
    partitions = root("SampleSet")["properties"]["spec"]["properties"]["partitions"]
    assert (partitions["minimum"], partitions["maximum"]) == (1, PARTITIONS)


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_schema_is_structural(kind: str) -> None:
    for path, schema in nodes(root(kind)):
        assert not {"$ref", "$defs", "title", "const", "allOf", "oneOf"} & schema.keys(), path
        assert ("type" in schema) != schema.get("x-kubernetes-int-or-string", False), path
        if "anyOf" in schema:
            assert schema["x-kubernetes-int-or-string"], path
        if "properties" in schema:
            assert "additionalProperties" not in schema, path


def test_only_the_published_api_defaults_exist() -> None:
    defaults = {
        (kind, path): schema["default"]
        for kind in KIND_NAMES
        for path, schema in nodes(root(kind))
        if "default" in schema
    }
    assert defaults == {
        ("SampleSet", ".spec.csi.driver"): "juicefs",
        ("SampleSet", ".spec.warmup.strategyName"): "sequence",
        ("SampleJob", ".spec.warmupOptions.strategyName"): "sequence",
        ("Trigger", ".spec.when.objectStore.events"): ["ObjectCreated"],
        ("Trigger", ".spec.when.schedule.timeZone"): "UTC",
        ("Trigger", ".spec.create.sampleJob.spec.warmupOptions.strategyName"): "sequence",
        ("Trigger", ".spec.concurrencyPolicy"): "Allow",
        ("Trigger", ".spec.successfulJobsHistoryLimit"): 3,
        ("Trigger", ".spec.failedJobsHistoryLimit"): 3,
        ("PaddleService", ".spec.mode"): "Auto",
        ("PaddleService", ".spec.revisionHistoryLimit"): 5,
        ("PaddleService", ".spec.rollout.mode"): "Automatic",
        ("PaddleService", ".spec.rollout.deadlineSeconds"): 1800,
        ("PaddleService", ".spec.rollout.limits.errorRate"): 1,
        ("PaddleService", ".spec.rollout.limits.latency"): 1.5,
        ("PaddleService", ".spec.rollout.steps[].minSeconds"): 30,
        ("PaddleService", ".spec.rollout.steps[].minRequests"): 50,
        ("PaddleService", ".spec.service.autoscaler"): "kpa.autoscaling.knative.dev",
        ("PaddleService", ".spec.service.metric"): "concurrency",
        ("PaddleService", ".spec.service.target"): 100,
        ("PaddleService", ".spec.service.targetUtilization"): "70",
        ("PaddleService", ".spec.service.window"): "60s",
        ("PaddleService", ".spec.service.panicWindow"): "10",
        ("PaddleService", ".spec.service.panicThreshold"): "200",
    }


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_kubectl_apply_can_annotate_the_definition_with_itself(kind: str) -> None:
    annotations_limit = 256 << 10
    assert len(json.dumps(crds()[kind], separators=(",", ":"))) < annotations_limit * 3 / 4


@pytest.mark.parametrize("kind", ["PaddleJob", "Trigger"])
def test_templates_let_no_unknown_field_pass(kind: str) -> None:
    templates = [path for path, _ in nodes(root(kind)) if path.endswith(".template.spec.containers")]
    assert len(templates) == 3
    assert not any("x-kubernetes-preserve-unknown-fields" in schema for _, schema in nodes(root(kind)))


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_every_rule_names_its_remedy(kind: str) -> None:
    found = [rule for _, schema in nodes(root(kind)) for rule in schema.get("x-kubernetes-validations", ())]
    assert found
    for rule in found:
        assert len(rule["message"]) > 20
        assert rule["reason"] in {"FieldValueInvalid", "FieldValueRequired"}


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_own_fields_are_described(kind: str) -> None:
    for field in root(kind)["properties"]["spec"]["properties"].values():
        assert field["description"]


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_every_kind_is_shown_with_its_reason_and_in_the_category(kind: str) -> None:
    assert crds()[kind]["spec"]["names"]["categories"] == ["paddle"]
    columns = {c["jsonPath"]: c.get("priority", 0) for c in version(kind)["additionalPrinterColumns"]}
    assert (columns[".status.reason"], columns[".status.message"]) == (0, 1)


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_a_column_shows_a_field_of_the_schema(kind: str) -> None:
    fields = {path for path, _ in nodes(root(kind))} | {".metadata.creationTimestamp"}
    for column in version(kind)["additionalPrinterColumns"]:
        assert column["jsonPath"].split("[")[0] in fields


def test_published_names_and_columns() -> None:
    names = {kind: crds()[kind]["spec"]["names"] for kind in KIND_NAMES}
    assert names["PaddleJob"] == {
        "categories": ["paddle"],
        "kind": "PaddleJob",
        "listKind": "PaddleJobList",
        "plural": "paddlejobs",
        "singular": "paddlejob",
        "shortNames": ["pdj"],
    }
    columns = {kind: [c["name"] for c in version(kind)["additionalPrinterColumns"]] for kind in KIND_NAMES}
    published = {
        "PaddleJob": ["Status", "Mode", "Age"],
        "SampleSet": ["TOTAL SIZE", "CACHED SIZE", "AVAIL SPACE", "Runtime", "PHASE", "AGE"],
        "SampleJob": ["PHASE"],
    }
    for kind, wanted in published.items():
        assert [name for name in columns[kind] if name in wanted] == wanted
    assert {kind: version(kind)["name"] for kind in KIND_NAMES} == {
        "PaddleJob": "v1",
        "SampleSet": "v1alpha1",
        "SampleJob": "v1alpha1",
        "Trigger": "v1alpha1",
        "PaddleService": "v1",
    }
    short = {kind: names[kind].get("shortNames") for kind in KIND_NAMES}
    assert short == {
        "PaddleJob": ["pdj"],
        "SampleSet": ["sset"],
        "SampleJob": ["sjob"],
        "Trigger": ["trg"],
        "PaddleService": ["psvc"],
    }
    assert all("status" in version(kind)["subresources"] for kind in KIND_NAMES)
    assert [kind for kind in KIND_NAMES if "scale" in version(kind)["subresources"]] == [
        "PaddleJob",
        "PaddleService",
    ]


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_what_refuses_keys_in_an_address_names_its_field(kind: str) -> None:
    for path, schema in nodes(root(kind)):
        for rule in schema.get("x-kubernetes-validations", ()):
            if "must not contain keys" in rule["message"] and schema["type"] == "string":
                assert rule["message"].split()[0] == path.rpartition(".")[2], path
