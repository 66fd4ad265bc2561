"""Links between the Markdown files of the repository, and those of them that lead nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from os.path import normpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin

# Anchors are those of GitHub; `zensical.toml` gives the site the same.
_MARKDOWN = MarkdownIt("commonmark").enable("table").use(anchors_plugin, max_level=6)


@dataclass(frozen=True)
class Link:
    """A link of a page to a place in the repository; `path` is None for one within the page."""

    page: Path
    line: int
    href: str
    path: Path | None
    anchor: str

    @property
    def target(self) -> Path:
        """The file it leads to."""
        return self.path or self.page


@dataclass(frozen=True)
class Page:
    """The links of a Markdown file, and its anchors."""

    links: tuple[Link, ...]
    anchors: frozenset[str]


def pages(root: Path) -> list[Path]:
    """Every Markdown file of the repository."""
    return sorted(path for path in root.rglob("*.md") if not is_foreign(path.relative_to(root)))


def complaints(root: Path, links: Iterable[Link]) -> list[str]:
    """One line for each link that leads nowhere: file, line, link and why."""
    found = ((link, complaint(root, link)) for link in links)
    return [f"{link.page.relative_to(root)}:{link.line}: {link.href}: {why}" for link, why in found if why]


def complaint(root: Path, link: Link) -> str:
    """Why the link leads nowhere; empty when it leads somewhere."""
    target = link.target
    if not target.is_relative_to(root):
        return "leaves the repository"
    if is_foreign(target.relative_to(root)):
        return "is not part of the documentation: a hidden file, or a built one"
    if not target.exists():
        return "no such file"
    if target.is_dir():
        return "is a folder, which a site cannot show: link a file in it, such as its README.md"
    if link.anchor and target.suffix != ".md":
        return "only headings of Markdown files have anchors"
    if link.anchor and link.anchor not in read(target).anchors:
        return f"no heading of {target.relative_to(root)} has this anchor"
    return ""


@cache
def read(path: Path) -> Page:
    """Parse a Markdown file."""
    tokens = _MARKDOWN.parse(path.read_text(encoding="utf-8"))
    anchors = (token.attrGet("id") for token in tokens if token.type == "heading_open")
    return Page(tuple(_links(path, tokens)), frozenset(str(anchor) for anchor in anchors))


def _links(page: Path, tokens: list[Token]) -> Iterator[Link]:
    for block in tokens:
        line = block.map[0] + 1 if block.map else 0
        for token in block.children or ():
            href = str(token.attrGet("href") or token.attrGet("src") or "")
            parts = urlsplit(href)
            if href and not parts.scheme and not parts.netloc:
                path = Path(normpath(page.parent / unquote(parts.path))) if parts.path else None
                yield Link(page, line, href, path, unquote(parts.fragment))


def is_foreign(relative: Path) -> bool:
    """Hidden files, and what is built or installed in a checkout."""
    return any(part.startswith(".") for part in relative.parts) or relative.parts[:1] == ("build",)
