"""What works but misleads is accepted, and the user is told what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

pytestmark = pytest.mark.usefixtures("policies")


TABLE = yaml.safe_load(Path(__file__).with_name("warned.yaml").read_text(encoding="utf-8"))
CASES = [
    pytest.param(kind, case, id=f"{kind}: {name}")
    for kind, cases in TABLE.items()
    for name, case in cases.items()
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_odd_manifest_is_accepted_with_a_warning(
    kind: str, case: dict[str, Any], send: Callable[..., Any], make: Callable[..., Any]
) -> None:
    answer = send(make(kind, case["change"]))
    assert answer.error == ""
    assert any(case["says"] in line for line in answer.warnings), answer.warnings


@pytest.mark.parametrize("kind", ["PaddleJob", "SampleSet", "SampleJob"])
def test_good_manifest_is_accepted_without_a_word(
    kind: str, send: Callable[..., Any], make: Callable[..., Any]
) -> None:
    assert send(make(kind)).warnings == ()


@pytest.fixture
def stored(
    request: pytest.FixtureRequest,
    send: Callable[..., Any],
    make: Callable[..., Any],
    kubectl: Callable[..., Any],
) -> Iterator[dict[str, Any]]:
    """A good object of the wanted kind in the API server."""
    name = f"edited-{uuid4().hex[:8]}"
    yield send(make(request.param, {"metadata.name": name}), keep=True).stored
    kubectl("delete", request.param.lower(), name, "-n", "default")


EDITS = [
    ("", {"cache": {"levels": [{"path": "/ssd"}]}}, ""),
    (
        "Bound",
        {"cache": {"levels": [{"path": "/ssd"}]}},
        "spec.cache is not meant to change",
    ),
    ("Ready", {"secretRef": {"name": "other"}}, "spec.secretRef is not meant to change"),
    ("Ready", {"source": {"uri": "s3://bucket.example.com/b"}}, "spec.source is not meant to change"),
    ("SyncFailed", {"source": {"uri": "s3://bucket.example.com/b"}}, ""),
    ("SyncFailed", {"source": {"secretRef": {"name": "right"}}}, ""),
    ("SyncFailed", {"noSync": True}, ""),
    ("Ready", {"partitions": 5}, ""),
    ("Ready", {"warmup": {"paths": ["train"]}}, ""),
]


@pytest.mark.parametrize("stored", ["SampleSet"], indirect=True)
@pytest.mark.parametrize(("phase", "edit", "says"), EDITS)
def test_edits_of_a_bound_set_are_accepted_and_commented(
    phase: str, edit: dict[str, Any], says: str, stored: dict[str, Any], patch: Callable[..., Any]
) -> None:
    patch(stored, {"status": {"phase": phase}}, subresource="status")
    answer = patch(stored, {"spec": edit})
    assert answer.error == ""
    assert [says in line for line in answer.warnings] == ([True] if says else [])


@pytest.mark.parametrize("stored", ["SampleSet"], indirect=True)
@pytest.mark.parametrize(("phase", "is_commented"), [("SyncFailed", False), ("PartialReady", True)])
def test_taking_no_sync_back_is_commented_once_the_set_has_gone_on_without_a_sync(
    phase: str, is_commented: bool, stored: dict[str, Any], patch: Callable[..., Any]
) -> None:
    patch(stored, {"spec": {"noSync": True}})
    patch(stored, {"status": {"phase": phase}}, subresource="status")
    answer = patch(stored, {"spec": {"noSync": None}})
    assert answer.error == ""
    assert ["taking spec.noSync back" in line for line in answer.warnings] == [True] * is_commented


@pytest.mark.parametrize("stored", ["SampleJob"], indirect=True)
def test_edit_of_a_finished_operation_is_commented(stored: dict[str, Any], patch: Callable[..., Any]) -> None:
    patch(stored, {"status": {"phase": "Succeeded"}}, subresource="status")
    answer = patch(stored, {"spec": {"terminate": True}})
    assert any("make a new SampleJob" in line for line in answer.warnings)


@pytest.mark.parametrize("stored", ["PaddleJob"], indirect=True)
def test_controllers_that_touch_metadata_only_hear_nothing(
    stored: dict[str, Any], patch: Callable[..., Any]
) -> None:
    assert patch(stored, {"spec": {"cleanPodPolicy": "Nerver"}}).warnings != ()
    assert patch(stored, {"metadata": {"labels": {"a": "b"}}}).warnings == ()
