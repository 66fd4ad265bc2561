"""What could never work is refused by the API server itself, with the field and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

TABLE = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8"))
CASES = [
    pytest.param(kind, case, id=f"{kind}: {name}")
    for kind, cases in TABLE.items()
    for name, case in cases.items()
]


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize(("kind", "case"), CASES)
def test_bad_manifest_is_refused_with_field_and_remedy(
    kind: str, case: dict[str, Any], send: Callable[..., Any], make: Callable[..., Any]
) -> None:
    answer = send(make(kind, case["change"]))
    assert answer.stored == {}
    assert case["field"] in answer.error
    assert case["says"] in answer.error


def test_name_that_just_fits_is_accepted(send: Callable[..., Any], make: Callable[..., Any]) -> None:
    assert send(make("PaddleJob", {"metadata.name": "j" * 54})).error == ""
    assert send(make("SampleSet", {"metadata.name": "s" * 44})).error == ""
    assert send(make("SampleJob", {"metadata.name": "o" * 53})).error == ""


def test_scaling_beyond_what_the_name_allows_is_refused(
    send: Callable[..., Any], patch: Callable[..., Any], make: Callable[..., Any], kubectl: Callable[..., Any]
) -> None:
    name = "j" * 53
    stored = send(make("PaddleJob", {"metadata.name": name, "spec.worker.replicas": 100}), keep=True).stored
    try:
        assert "metadata.name" in patch(stored, {"spec": {"worker": {"replicas": 101}}}).error
        assert patch(stored, {"metadata": {"finalizers": ["finalizers.paddlepaddle.org"]}}).error == ""
    finally:
        patch(stored, {"metadata": {"finalizers": None}})
        kubectl("delete", "paddlejob", name, "-n", "default")
