"""The site: the pages of its navigation, and every file that they link to, in the repository's own layout.

A link between two files of the repository so leads to the same place on the site as in a checkout.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddlewheel.docs.errors import DocsError
from paddlewheel.docs.links import complaints, read
from paddlewheel.docs.shown import unmarked

CONFIG = "zensical.toml"
_LOADED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
_HARMLESS = re.compile(r"""<link\b[^>]*\brel=["']?canonical""")


def build(root: Path) -> None:
    """Build the site into its folder.

    Raises:
        DocsError: a link leads nowhere, a page is wrong, commands are neither tested nor marked, or the site
            would load something from elsewhere.
    """
    if wrong := unmarked(root):
        raise DocsError("\n".join(wrong))
    project = tomllib.loads((root / CONFIG).read_text(encoding="utf-8"))["project"]
    stage(root, root / project["docs_dir"], {*_pages(project["nav"]), *project["extra_css"]})
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(root / CONFIG)]
    if subprocess.run(command, cwd=root, check=False).returncode:
        raise DocsError("the site was not built: see the warnings above")
    site = root / project["site_dir"]
    if foreign := sorted(loaded_from_elsewhere(site)):
        raise DocsError("the site must work without the Internet: " + "; ".join(foreign))


def stage(root: Path, target: Path, first: set[str]) -> None:
    """Copy the pages, and what can be reached from them by links."""
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(reachable(root, {root / name for name in first})):
        copy = target / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def reachable(root: Path, first: set[Path]) -> set[Path]:
    """Files that links lead to, from page to page. Raises DocsError."""
    found, new = set[Path](), set(first)
    while new:
        found |= new
        links = [link for path in new if path.suffix == ".md" for link in read(path).links]
        if wrong := complaints(root, links):
            raise DocsError("\n".join(wrong))
        new = {link.target for link in links} - found
    return found


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    """Pages with scripts, styles, fonts or images of another server, one line for each."""
    for page in site.rglob("*.html"):
        for tag in _LOADED.finditer(page.read_text(encoding="utf-8")):
            if not _HARMLESS.match(tag[0]):
                yield f"{page.relative_to(site)} loads {tag[1]}"


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, Mapping) else nav if isinstance(nav, list) else ():
        yield from _pages(part)
