"""Lines added to shared files: in their place, or a refusal that names the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.scaffold.insertions import INSERTIONS, AnchorError, Insertion, insert
from paddlewheel.scaffold.naming import Naming
from paddlewheel.scaffold.write import ExistsError, write
from paddlewheel.testkit.charts import REPOSITORY

NAMES = Naming.of("notebook").placeholders


@pytest.mark.parametrize(
    ("after", "expected"), [(True, "a\nbc\nnotebook-controller\nd"), (False, "a\nnotebook-controller\nbc\nd")]
)
def test_a_line_goes_beside_its_anchor(after: bool, expected: str) -> None:
    assert insert("a\nbc\nd", Insertion("f", "b", "$service", after), NAMES) == expected


def test_a_missing_anchor_is_named_with_its_file() -> None:
    with pytest.raises(AnchorError, match=r"f\.py: no line starts with 'x'"):
        insert("a", Insertion("f.py", "x", "y"), NAMES)


def test_each_anchor_is_in_its_file() -> None:
    for insertion in INSERTIONS:
        insert((REPOSITORY / insertion.path).read_text(), insertion, NAMES)


def test_nothing_is_written_when_one_anchor_is_missing(tmp_path: Path) -> None:
    for insertion in INSERTIONS[:-1]:
        target = tmp_path / insertion.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    with pytest.raises(AnchorError):
        write(tmp_path, Naming.of("notebook"))
    assert not (tmp_path / "services").exists()


def test_an_existing_service_is_never_overwritten(tmp_path: Path) -> None:
    readme = tmp_path / "services" / "notebook-controller" / "README.md"
    readme.parent.mkdir(parents=True)
    readme.write_text("mine")
    with pytest.raises(ExistsError, match=r"README\.md exists already"):
        write(tmp_path, Naming.of("notebook"))
    assert readme.read_text() == "mine"
