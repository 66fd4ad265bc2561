"""Files shown on pages: the body of a fence with `title="path"` is that file, and `make gen` keeps it so."""

from __future__ import annotations

import re
from pathlib import Path

from paddlewheel.docs.errors import DocsError
from paddlewheel.docs.shown import MARK

_FENCE = re.compile(
    rf'^(?P<open>```\w+ title="(?!{MARK}")(?P<path>[^"]+)"\n)(?P<body>.*?)^```$', re.MULTILINE | re.DOTALL
)


def with_files(root: Path, text: str) -> str:
    """The page with the present content of the files that it shows.

    Raises:
        DocsError: there is no such file.
    """
    return _FENCE.sub(lambda fence: f"{fence['open']}{_content(root, fence['path'])}```", text)


def _content(root: Path, path: str) -> str:
    if not (root / path).is_file():
        raise DocsError(f'title="{path}": no such file; name one of the repository')
    return (root / path).read_text(encoding="utf-8")
