"""Commands on the pages that users read first: tests run them, or a title marks them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

MARK = "On your cluster"
"""The title of a block whose commands no test runs: they need the reader's own cluster."""
FIRST_PAGES = ("README.md", "docs/tutorial.md", "docs/tasks/*.md")
_PROGRAMS = "buildah|curl|docker|export|for|go|helm|kubectl|make|nats|paddlewheel|pip|podman|python3?"
_COMMAND = re.compile(rf"^\s*(\$ |(\w+=\S+ )*(\S*/)?({_PROGRAMS}) )", re.MULTILINE)
_OUTPUT = ("", "text")
_SHELLS = ("bash", "sh", "shell")


def unmarked(root: Path) -> list[str]:
    """One line for each block whose commands neither run in a test nor are marked."""
    paths = sorted(path for pattern in FIRST_PAGES for path in root.glob(pattern))
    return [f"{path.relative_to(root)}:{line}: {why}" for path in paths for line, why in _wrong(path)]


def _wrong(page: Path) -> Iterator[tuple[int, str]]:
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type != "fence" or not token.map:
            continue
        line, language = token.map[0] + 1, token.info.partition(" ")[0]
        if language in _OUTPUT and _COMMAND.search(token.content):
            yield (
                line,
                f'commands in a block of output: use console if a test runs them, else bash title="{MARK}"',
            )
        if language in _SHELLS and f'title="{MARK}"' not in token.info:
            yield line, f'no test runs these commands: use console, or add title="{MARK}"'
