"""A new service's names, and what cannot be one."""

from __future__ import annotations

import pytest

from paddlewheel.scaffold.naming import BadNameError, Naming


@pytest.mark.parametrize(
    ("name", "kind", "service", "expected", "constant"),
    [
        ("notebook", "", "notebook-controller", "Notebook", "NOTEBOOK"),
        ("notebook-controller", "", "notebook-controller", "Notebook", "NOTEBOOK"),
        ("model-hub", "", "model-hub-controller", "ModelHub", "MODEL_HUB"),
        ("visual", "VisualDL", "visual-controller", "VisualDL", "VISUAL_DL"),
    ],
)
def test_everything_follows_from_the_name(
    name: str, kind: str, service: str, expected: str, constant: str
) -> None:
    naming = Naming.of(name, kind)
    assert (naming.service, naming.kind, naming.placeholders["CONST"]) == (service, expected, constant)
    assert naming.placeholders["package"] == service.replace("-", "_")


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("Notebook", "", "NAME=Notebook"),
        ("a_b", "", "lower-case"),
        ("x", "notebook", "KIND=notebook"),
        ("", "", "NAME="),
    ],
)
def test_a_bad_name_says_what_a_good_one_looks_like(name: str, kind: str, says: str) -> None:
    with pytest.raises(BadNameError, match=says):
        Naming.of(name, kind)
