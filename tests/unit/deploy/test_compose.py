"""compose.yaml against the Compose specification's own schema, which check-jsonschema brings along."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dataset_controller.config import Settings as DatasetSettings
from job_controller.config import Settings as JobSettings
from paddlewheel.core.settings import ServiceSettings
from serving_controller.config import Settings as ServingSettings
from trigger_controller.config import Settings as TriggerSettings

REPOSITORY = Path(__file__).parents[3]
CONTROLLERS: dict[str, type[ServiceSettings]] = {
    "job-controller": JobSettings,
    "dataset-controller": DatasetSettings,
    "trigger-controller": TriggerSettings,
    "serving-controller": ServingSettings,
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    return document


def test_it_is_valid_against_the_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]

    ended = subprocess.run(
        [*command, REPOSITORY / "compose.yaml"], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_reference_resolves(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert set(service.get("depends_on", [])) <= set(compose["services"]), name
        assert (REPOSITORY / service["build"]["dockerfile"]).is_file(), name
        assert {config["source"] for config in service.get("configs", [])} <= set(compose["configs"]), name
        mounts = [volume for volume in service.get("volumes", []) if isinstance(volume, str)]
        assert {volume.split(":")[0] for volume in mounts} <= set(compose["volumes"]), name


def test_every_variable_has_a_default(compose: dict[str, Any]) -> None:
    text = (REPOSITORY / "compose.yaml").read_text()
    variables = re.findall(r"\$\{(\w+)([^}]?)", text)

    assert {name for name, rest in variables if rest != ":"} == {"HOME"}


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_every_variable_is_a_setting_of_the_service(compose: dict[str, Any], name: str) -> None:
    settings = CONTROLLERS[name]
    prefix = str(settings.model_config["env_prefix"])

    variables = compose["services"][name]["environment"]

    assert {variable.removeprefix(prefix).lower() for variable in variables} <= set(settings.model_fields)


def test_s3_identities_are_json(compose: dict[str, Any]) -> None:
    identities = json.loads(compose["configs"]["s3"]["content"])["identities"]

    assert [identity["name"] for identity in identities] == ["demo"]
