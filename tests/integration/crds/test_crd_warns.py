"""The API server accepts what works but misleads, and warns the user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.crds.api import Api, each, make
from tests.integration.crds.conftest import Kubectl

from paddlewheel.testkit.wait import eventually

pytestmark = pytest.mark.usefixtures("policies")

TABLE = yaml.safe_load(Path(__file__).with_name("warned.yaml").read_text(encoding="utf-8"))
ROWS = {f"{kind}: {name}": (kind, case) for kind, cases in TABLE.items() for name, case in cases.items()}
EDITS: list[tuple[str, dict[str, Any], str]] = [
    ("", {"cache": {"levels": [{"path": "/ssd"}]}}, ""),
    ("Bound", {"cache": {"levels": [{"path": "/ssd"}]}}, "spec.cache is not meant to change"),
    ("Ready", {"secretRef": {"name": "other"}}, "spec.secretRef is not meant to change"),
    ("Ready", {"source": {"uri": "s3://bucket.example.com/b"}}, "spec.source is not meant to change"),
    ("SyncFailed", {"source": {"uri": "s3://bucket.example.com/b"}}, ""),
    ("SyncFailed", {"source": {"secretRef": {"name": "right"}}}, ""),
    ("SyncFailed", {"noSync": True}, ""),
    ("Ready", {"partitions": 5}, ""),
    ("Ready", {"warmup": {"paths": ["train"]}}, ""),
]


async def test_every_odd_manifest_is_accepted_with_a_warning(api: Api) -> None:
    async def check(row: tuple[str, dict[str, Any]]) -> None:
        kind, case = row
        answer = await api.send(make(kind, case["change"]))
        assert answer.error == ""
        assert any(case["says"] in line for line in answer.warnings), answer.warnings

    await each(ROWS, check)


async def test_a_good_manifest_is_accepted_without_a_warning(api: Api) -> None:
    async def check(kind: str) -> None:
        assert (await api.send(make(kind))).warnings == ()

    await each({kind: kind for kind in ("PaddleJob", "SampleSet", "SampleJob")}, check)


async def test_edits_of_a_bound_set_are_accepted_with_a_warning(api: Api) -> None:
    async def check(row: tuple[str, dict[str, Any], str]) -> None:
        phase, edit, says = row
        async with api.kept(make("SampleSet")) as stored:
            await api.patch(stored, {"status": {"phase": phase}}, subresource="status")
            answer = await api.patch(stored, {"spec": edit})
        assert answer.error == ""
        assert [says in line for line in answer.warnings] == ([True] if says else [])

    await each({f"{phase}: {edit}": (phase, edit, says) for phase, edit, says in EDITS}, check)


async def test_removing_no_sync_gives_a_warning_once_the_set_is_usable_without_a_sync(api: Api) -> None:
    async def check(row: tuple[str, int]) -> None:
        phase, warnings = row
        async with api.kept(make("SampleSet")) as stored:
            await api.patch(stored, {"spec": {"noSync": True}})
            await api.patch(stored, {"status": {"phase": phase}}, subresource="status")
            answer = await api.patch(stored, {"spec": {"noSync": None}})
        assert answer.error == ""
        assert ["removing spec.noSync copies nothing" in line for line in answer.warnings] == [
            True
        ] * warnings

    await each({"failed": ("SyncFailed", 0), "usable": ("PartialReady", 1)}, check)


async def test_an_edit_of_a_finished_operation_gives_a_warning(api: Api) -> None:
    async with api.kept(make("SampleJob")) as stored:
        await api.patch(stored, {"status": {"phase": "Succeeded"}}, subresource="status")
        answer = await api.patch(stored, {"spec": {"terminate": True}})
    assert any("create a new SampleJob" in line for line in answer.warnings)


async def test_a_change_of_metadata_alone_gives_no_warning(api: Api) -> None:
    async with api.kept(make("PaddleJob")) as stored:
        assert (await api.patch(stored, {"spec": {"cleanPodPolicy": "Nerver"}})).warnings != ()
        assert (await api.patch(stored, {"metadata": {"labels": {"a": "b"}}})).warnings == ()


async def test_kubernetes_has_no_objection_to_the_expressions(kubectl: Kubectl) -> None:
    """It would find fields that one of the kinds does not have, some time after the policy is created."""

    def checked() -> Any:
        status = json.loads(kubectl("get", "validatingadmissionpolicies", "-o", "json").stdout)["items"]
        own = {item["metadata"]["name"]: item.get("status", {}) for item in status}
        found = own["warnings.batch.paddlepaddle.org"]
        return found if found.get("observedGeneration") else None

    status = await eventually(checked, what="the policy is checked")
    assert not status.get("typeChecking", {}).get("expressionWarnings")
