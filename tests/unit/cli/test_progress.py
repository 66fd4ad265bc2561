"""The progress bar of the commands on a terminal."""

from __future__ import annotations

import pytest

from paddlewheel.cli.progress import progress_reporter


def test_a_bar_shows_a_message_as_it_is_and_without_what_controls_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with progress_reporter("team-a/[/sine]") as report:
        report("Pending: ImagePullBackOff: no [/red] \x1b[2J\x1b]0;mine\x07 image", 0.5)
    shown = capsys.readouterr().err
    assert "team-a/[/sine]" in shown
    assert r"no [/red] \x1b[2J\x1b]0;mine\x07 image" in shown


def test_a_pipe_gets_a_line_for_each_new_text(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_reporter("team-a/sine") as report:
        for text in ("waiting", "waiting", "Running", "bad \x1b[2J"):
            report(text, 0.5)
    assert capsys.readouterr().err == (
        "team-a/sine: waiting\nteam-a/sine: Running\nteam-a/sine: bad \\x1b[2J\n"
    )
