"""Selectors that cannot be parsed are refused. Fields are found by their path."""

from __future__ import annotations

import pytest

from paddlewheel.core.errors import Permanent
from paddlewheel.testkit.memory_cluster.selectors import matches

POD = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "x"}, "status": {"phase": "Running"}}


@pytest.mark.parametrize("selector", ["a b", "a in b", "a in (b", "=b", "a>1"])
def test_a_bad_label_selector_is_permanent(selector: str) -> None:
    with pytest.raises(Permanent, match="unable to parse"):
        matches(POD, selector, "")


def test_a_bad_field_selector_is_permanent() -> None:
    with pytest.raises(Permanent, match="invalid field selector"):
        matches(POD, "", "metadata.name")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=p,metadata.namespace=n", True),
        ("metadata.name=q", False),
        ("spec.nodeName!=x", False),
        ("spec.nodeName==x,status.phase=Running", True),
        ("spec.missing.deep=", True),
        ("", True),
    ],
)
def test_fields(selector: str, expected: bool) -> None:
    assert matches(POD, "", selector) is expected
