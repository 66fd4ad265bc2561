"""Mermaid diagrams as SVG, at build time: no script on the page, and a mistake in one fails the build."""

from __future__ import annotations

import hashlib
from typing import Any

import mermaidx

_ID = "my-svg"
"""The id of every diagram that the renderer draws; styles refer to it."""


def fence(source: str, _language: str, _class: str, _options: Any, _markdown: Any, **_more: Any) -> str:
    """The body of a `mermaid` fence, as pymdownx.superfences calls it."""
    own = f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    return f'<div class="diagram">{mermaidx.render(source).svg().replace(_ID, own)}</div>'
