"""A terminal recording for the README: a real run, shown faster and with fewer frames."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

SPEED = 3.0
FRAME_INTERVAL_SECONDS = 0.3
"""Output within this time of the result is one frame."""
LAST_FRAME_INTERVAL_SECONDS = 6.0

Event = tuple[float, str]


def shorten(source: Path, target: Path) -> None:
    """Rewrite an asciicast (version 2, as asciinema records it).

    Source: https://docs.asciinema.org/manual/asciicast/v2/
    """
    head, *lines = (json.loads(line) for line in source.read_text().splitlines())
    printed = ((time / SPEED, text) for time, kind, text in lines if kind == "o")
    # Nothing about the machine that it was recorded on.
    header = {name: head[name] for name in ("version", "width", "height")}
    events = [[round(time, 2), "o", text] for time, text in frames(printed)]
    target.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *events)))


def frames(printed: Iterable[Event]) -> Iterator[Event]:
    """Join what follows within a frame; ends with an empty one that holds the last."""
    began, joined = 0.0, ""
    for time, text in printed:
        if joined and time - began >= FRAME_INTERVAL_SECONDS:
            yield began, joined
            joined = ""
        began = began if joined else time
        joined += text
    yield began, joined
    yield began + LAST_FRAME_INTERVAL_SECONDS, ""
