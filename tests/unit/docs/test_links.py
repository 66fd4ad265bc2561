"""Links between pages lead somewhere, and broken ones are refused with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.docs.links import complaints, pages, read

REPOSITORY = Path(__file__).parents[3]


def make(root: Path, **files: str) -> list[str]:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [wrong for page in pages(root) for wrong in complaints(root, read(page).links)]


def test_every_link_of_the_repository_leads_somewhere() -> None:
    found = pages(REPOSITORY)
    assert len(found) > 50
    assert [wrong for page in found for wrong in complaints(REPOSITORY, read(page).links)] == []


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("other.md", "no such file"),
        ("docs", "is a folder, which a site cannot show: link a file in it, such as its README.md"),
        ("docs/b.md#no-such-heading", "no heading of docs/b.md has this anchor"),
        ("#no-such-heading", "no heading of a.md has this anchor"),
        ("../outside.md", "leaves the repository"),
        ("/docs/b.md", "leaves the repository"),
        ("docs/c.yaml#L3", "only headings of Markdown files have anchors"),
        (".hidden", "is not part of the documentation: a hidden file, or a built one"),
        ("build/x.md", "is not part of the documentation: a hidden file, or a built one"),
    ],
)
def test_a_link_that_leads_nowhere_is_named_with_its_line(tmp_path: Path, link: str, why: str) -> None:
    made = make(
        tmp_path,
        a_md=f"# A\n\nSee [this]({link}).\n",
        docs__b_md="# B\n",
        **{"docs/c.yaml": "", ".hidden": ""},
    )

    assert made == [f"a.md:3: {link}: {why}"]


def test_links_in_tables_lists_and_images_are_checked(tmp_path: Path) -> None:
    text = "| a |\n|---|\n| [x](no1) |\n\n- [y](no2)\n\n![z](no3)\n\n[w]\n\n[w]: no4\n"

    made = make(tmp_path, a_md=text)

    assert [line.split(": ")[1] for line in made] == ["no1", "no2", "no3", "no4"]


def test_what_only_looks_like_a_link_is_none(tmp_path: Path) -> None:
    assert make(tmp_path, a_md="`[x](no)`\n\n```text\n[x](no)\n```\n\n    [x](no)\n") == []


def test_other_servers_are_not_asked(tmp_path: Path) -> None:
    assert make(tmp_path, a_md="[x](https://example.com/no) [y](mailto:a@example.com)\n") == []


def test_anchors_are_those_of_the_headings_as_they_read(tmp_path: Path) -> None:
    text = "# What `spec.worker` says\n\n## 1. A step, and_more\n\n## Twice\n\n## Twice\n"
    links = "[a](#what-specworker-says) [b](#1-a-step-and_more) [c](#twice) [d](#twice-1)\n"

    assert make(tmp_path, a_md=text + links) == []


def test_a_path_may_be_escaped_and_go_up(tmp_path: Path) -> None:
    assert make(tmp_path, **{"docs/a b.md": "[x](../docs/a%20b.md#t)\n# T\n"}) == []
