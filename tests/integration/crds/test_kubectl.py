"""What kubectl itself adds: strict validation, applying, scaling and the category of all kinds."""

from __future__ import annotations

import json
import subprocess
from uuid import uuid4

import pytest
from tests.integration.crds.api import Object, make
from tests.integration.crds.conftest import Kubectl

pytestmark = pytest.mark.usefixtures("policies")


def test_kubectl_validates_applies_scales_and_lists_a_job(kubectl: Kubectl) -> None:
    name = f"applied-{uuid4().hex[:6]}"

    def apply(changes: Object) -> subprocess.CompletedProcess[str]:
        manifest = make("PaddleJob", {"metadata.name": name, **changes})
        return kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    misspelt = apply({"spec.worker.replica": 2})
    assert misspelt.returncode == 1
    assert 'unknown field "spec.worker.replica"' in misspelt.stderr

    try:
        created = apply({"spec.cleanPodPolicy": "Nerver"})
        assert created.stdout.endswith(f"{name} created\n"), created.stderr
        assert created.stderr.startswith("Warning: ")
        assert apply({"spec.cleanPodPolicy": "Nerver"}).stdout.endswith(f"{name} unchanged\n")
        assert apply({}).stdout.endswith(f"{name} configured\n")

        scaled = kubectl("scale", "pdj", name, "--replicas=3")
        assert scaled.returncode == 0, scaled.stderr
        listed = kubectl("get", "paddle", "-o", "json")
        found = {each["metadata"]["name"]: each for each in json.loads(listed.stdout)["items"]}
        assert found[name]["spec"]["worker"]["replicas"] == 3
        assert "cleanPodPolicy" not in found[name]["spec"]
    finally:
        kubectl("delete", "paddlejob", name)
