"""Recordings: faster, with fewer frames, with all that was printed."""

from __future__ import annotations

import json
from pathlib import Path

from paddlewheel.docs.recording import FRAME_INTERVAL_SECONDS, LAST_FRAME_INTERVAL_SECONDS, SPEED, shorten


def shortened(folder: Path, events: list[tuple[float, str, str]]) -> list[object]:
    head = {"version": 2, "width": 80, "height": 24, "env": {"SHELL": "/bin/own"}}
    source, target = folder / "a.cast", folder / "b.cast"
    source.write_text("\n".join(json.dumps(line) for line in (head, *events)))
    shorten(source, target)
    return [json.loads(line) for line in target.read_text().splitlines()]


def test_frames_that_follow_at_once_are_joined_and_time_is_shorter(tmp_path: Path) -> None:
    later = 2 * FRAME_INTERVAL_SECONDS * SPEED
    _, *events = shortened(
        tmp_path, [(0.0, "o", "a"), (0.01, "o", "b"), (later, "o", "c"), (later, "i", "q")]
    )
    assert events == [
        [0.0, "o", "ab"],
        [2 * FRAME_INTERVAL_SECONDS, "o", "c"],
        [2 * FRAME_INTERVAL_SECONDS + LAST_FRAME_INTERVAL_SECONDS, "o", ""],
    ]


def test_nothing_about_the_machine_is_kept(tmp_path: Path) -> None:
    head, *_ = shortened(tmp_path, [(0.0, "o", "a")])
    assert head == {"version": 2, "width": 80, "height": 24}
