"""The site holds what its pages link to, in the repository's layout, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import zensical

from paddlewheel.docs.diagrams import fence
from paddlewheel.docs.errors import DocsError
from paddlewheel.docs.site import CONFIG, loaded_from_elsewhere, stage

REPOSITORY = Path(__file__).parents[3]


def in_navigation(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [name for part in parts for name in in_navigation(part)]


@pytest.fixture
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((REPOSITORY / CONFIG).read_text())["project"]
    return found


def test_every_page_of_docs_is_in_the_navigation_or_one_of_the_decisions(project: dict[str, Any]) -> None:
    written = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "docs").rglob("*.md")}
    decisions = {name for name in written if name.startswith("docs/decisions/0")}

    assert written - decisions == {name for name in in_navigation(project["nav"]) if name.startswith("docs/")}


def test_every_decision_is_listed_under_its_title() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    titles = [(path.name, path.read_text().partition("\n")[0]) for path in sorted(folder.glob("0*.md"))]

    listed = (folder / "README.md").read_text().splitlines()
    assert [line for line in listed if line.startswith("- ")] == [
        f"- [{title.removeprefix('# ')}]({name})" for name, title in titles
    ]


def test_what_pages_link_to_comes_along(tmp_path: Path) -> None:
    root, target = tmp_path / "root", tmp_path / "staged"
    (root / "docs").mkdir(parents=True)
    (root / "README.md").write_text("[a](docs/a.md)")
    (root / "docs" / "a.md").write_text("[b](b.yaml) [home](../README.md)")
    (root / "docs" / "b.yaml").write_text("b: 1")
    (root / "docs" / "unlinked.md").write_text("")
    (target / "old").mkdir(parents=True)

    stage(root, target, {"README.md"})

    copied = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert copied == ["README.md", "docs/a.md", "docs/b.yaml"]
    assert not (target / "old").exists()


def test_a_site_with_a_broken_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("[a](no.md)")

    with pytest.raises(DocsError, match=r"README\.md:1: no\.md: no such file"):
        stage(tmp_path, tmp_path / "build", {"README.md"})


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://cdn.example/x.js">',
        "<script async src=//cdn.example/x.js>",
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<img alt="" src="http://example/x.png">',
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(tmp_path: Path, tag: str) -> None:
    (tmp_path / "index.html").write_text(f"<html>{tag}</html>")

    assert len(list(loaded_from_elsewhere(tmp_path))) == 1


def test_links_to_elsewhere_load_nothing(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="https://example.com">x</a><script src="assets/x.js"></script>'
    )

    assert list(loaded_from_elsewhere(tmp_path)) == []


def test_a_diagram_becomes_a_picture_with_an_id_of_its_own() -> None:
    picture = fence("flowchart LR\n  a --> b", "mermaid", "mermaid", {}, None)

    assert re.search(r'<svg id="diagram-[0-9a-f]{8}"', picture)
    assert re.findall(r"my-svg|<script", picture) == []


def test_the_script_of_the_theme_sets_the_attribute_while_it_copies() -> None:
    """site.css hides the prompts of commands by this attribute."""
    [attribute] = re.findall(r"\[([a-z-]+)\] \.gp", (REPOSITORY / "docs/assets/site.css").read_text())
    scripts = Path(str(zensical.__file__)).parent.glob("templates/assets/javascripts/bundle.*.js")
    assert any(f'"{attribute}"' in script.read_text() for script in scripts)
