"""examples/digits: manifests match the CRDs, each other and the demo's storage; digits are as documented."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from paddlewheel.contracts.crds.parse import (
    parse_paddle_job_spec,
    parse_sample_job_spec,
    parse_sample_set_spec,
)

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits"
STORAGE = Path(__file__).parents[3] / "deploy" / "charts" / "demo-storage" / "values.yaml"
NAMESPACE = "paddle-demo"
FROM_THE_OPERATOR = {
    "PADDLE_TRAINER_ID",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINER_ENDPOINTS",
    "POD_IP",
    "PADDLE_PORT",
}

Manifest = dict[str, Any]


def manifests(name: str) -> list[Manifest]:
    return [
        document for document in yaml.load_all((EXAMPLE / name).read_text(), yaml.CSafeLoader) if document
    ]


@pytest.fixture
def job() -> Manifest:
    return manifests("paddlejob.yaml")[0]


@pytest.fixture
def secrets() -> dict[str, Manifest]:
    return {m["metadata"]["name"]: m["stringData"] for m in manifests("secret.yaml")}


def container(job: Manifest) -> Manifest:
    found: Manifest = job["spec"]["worker"]["template"]["spec"]["containers"][0]
    return found


def test_sample_set_warms_two_partitions_automatically() -> None:
    spec = parse_sample_set_spec(manifests("sampleset.yaml")[0])

    assert spec.partitions == 2
    assert spec.warmup is not None


def test_job_has_one_worker_per_partition(job: Manifest) -> None:
    spec = parse_paddle_job_spec(job)

    assert spec.worker is not None
    assert spec.worker.replicas == parse_sample_set_spec(manifests("sampleset.yaml")[0]).partitions
    assert spec.sample_set_ref is not None
    assert spec.sample_set_ref.name == manifests("sampleset.yaml")[0]["metadata"]["name"]


def test_sample_job_warms_the_same_set() -> None:
    spec = parse_sample_job_spec(manifests("samplejob-warmup.yaml")[0])

    assert spec.type == "warmup"
    assert spec.sample_set_ref is not None
    assert spec.sample_set_ref.name == "digits"


def test_everything_is_in_the_demos_namespace() -> None:
    files = sorted(EXAMPLE.glob("*.yaml"))
    kinds = [
        m for path in files for m in manifests(path.name) if m["kind"] not in {"Namespace", "Kustomization"}
    ]

    assert {m["metadata"]["namespace"] for m in kinds} == {NAMESPACE}


def test_secrets_of_the_set_have_the_keys_of_the_demos_stores(secrets: dict[str, Manifest]) -> None:
    values = yaml.safe_load(STORAGE.read_text())
    spec = manifests("sampleset.yaml")[0]["spec"]
    engine, source = secrets[spec["secretRef"]["name"]], secrets[spec["source"]["secretRef"]["name"]]
    keys = (values["seaweedfs"]["accessKey"], values["seaweedfs"]["secretKey"])

    assert (engine["access-key"], engine["secret-key"]) == keys
    assert (source["access-key"], source["secret-key"]) == keys
    assert f":{values['redis']['password']}@redis.{NAMESPACE}.svc:6379" in engine["metaurl"]
    assert engine["bucket"].rsplit("/", 1)[1] in values["seaweedfs"]["buckets"]
    assert spec["source"]["uri"] == f"minio://seaweedfs.{NAMESPACE}.svc:8333/digits/"
    assert "digits" in values["seaweedfs"]["buckets"]


def test_job_does_not_set_the_operators_variables(job: Manifest) -> None:
    assert not FROM_THE_OPERATOR & {entry["name"] for entry in container(job)["env"]}


def test_model_is_written_to_the_mounted_set(job: Manifest) -> None:
    mounted = job["spec"]["sampleSetRef"]["mountPath"]

    assert container(job)["args"] == [f"--data={mounted}", f"--output={mounted}/models/digits"]


def test_code_is_mounted_from_kustomizes_config_map(job: Manifest) -> None:
    volumes = job["spec"]["worker"]["template"]["spec"]["volumes"]
    generator = manifests("kustomization.yaml")[0]["configMapGenerator"][0]

    assert volumes == [{"name": "code", "configMap": {"name": generator["name"]}}]
    assert generator["files"] == ["train.py"]


def test_files_of_the_kustomization_exist() -> None:
    assert all((EXAMPLE / name).is_file() for name in manifests("kustomization.yaml")[0]["resources"])


def test_training_code_is_valid_for_the_images_python() -> None:
    ast.parse((EXAMPLE / "train.py").read_text(), feature_version=(3, 11))


def test_first_digits_are_always_written_with_the_same_split(tmp_path: Path) -> None:
    write_digits = runpy.run_path(str(EXAMPLE / "make_digits.py"))["write_digits"]

    written = write_digits(tmp_path, 20)

    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png"))
    assert written == {"train": 16, "test": 4}
    # The data set starts with the digits 0 to 9, twice.
    held_out = ["test/0/0.png", "test/0/10.png", "test/5/15.png", "test/5/5.png"]
    assert [name for name in names if name.startswith("test/")] == held_out
    assert len(names) == 20
    with Image.open(tmp_path / names[0]) as image:
        assert (image.size, image.mode) == ((8, 8), "L")


def test_too_small_a_limit_is_rejected(tmp_path: Path) -> None:
    write_digits = runpy.run_path(str(EXAMPLE / "make_digits.py"))["write_digits"]

    with pytest.raises(ValueError, match="--limit: 3 is too small, the minimum is 10"):
        write_digits(tmp_path, 3)
