"""Tables on a terminal of 80 columns, on a narrow one, and in a pipe."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime

import pytest
from rich.console import Console
from tests.unit.cli.conftest import text_of

from paddlewheel.cli import job_tables
from paddlewheel.cli import main as program
from paddlewheel.cli.table import Table, print_table, properties
from paddlewheel.testkit.paddlejobs import make_paddle_job, make_role

NAME = "resnet-50-imagenet-finetune-of-march"
NAMESPACE = "computer-vision-team"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def jobs(phase: str = "Failed") -> Table:
    job = make_paddle_job(NAME, NAMESPACE, worker=make_role(2))
    job["metadata"]["creationTimestamp"] = "2026-01-01T21:00:00Z"
    status = {"phase": phase, "mode": "Collective", "ready": "0/2", "reason": "BackoffLimitExceeded"}
    return job_tables.jobs([{**job, "status": status}], NOW)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_that_are_forced_do_not_cut_a_table_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(jobs())
    assert capsys.readouterr().out.splitlines()[0].split()[-1] == "age"


def on_terminal(table: Table, width: int) -> str:
    out = Console(
        file=Terminal(), width=width, force_terminal=True, color_system="standard",
        markup=False, emoji=False, _environ={},
    )  # fmt: skip
    print_table(table, out)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def lines_of(table: Table, width: int) -> list[str]:
    return [line.rstrip() for line in COLOURS.sub("", on_terminal(table, width)).splitlines()]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (140, "job phase mode ready reason restarts epoch age"),
        (110, "job phase ready reason restarts age"),
        (80, "job phase"),
    ],
)
def test_the_least_important_columns_are_dropped_and_the_name_is_not_cut(width: int, columns: str) -> None:
    title, row = lines_of(jobs(), width)
    assert title.split() == columns.split()
    assert row.startswith(f"{NAMESPACE}/{NAME}  Failed")


def test_a_name_that_is_wider_than_the_terminal_is_wrapped() -> None:
    lines = lines_of(jobs(), 40)
    assert max(map(len, lines)) <= 40
    assert "".join(line[:32].strip() for line in lines[1:]) == f"{NAMESPACE}/{NAME}"


def test_free_text_is_wrapped_before_anything_else_is() -> None:
    table = Table(("condition", "reason", "message"), wraps={"message"})
    message = "no node has mounted the data " * 5
    table.add_row("Ready", "NoPartitionMounted", message)
    lines = lines_of(table, 80)
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("Ready      NoPartitionMounted  no node has mounted")
    assert (
        " ".join(line[31:].strip() for line in lines[1:]).split()
        == ["no", "node", "has", "mounted", "the", "data"] * 5
    )


def test_a_pipe_gets_every_column_on_one_plain_line_for_each_row() -> None:
    table = jobs()
    table.add_row(f"a/{'x' * 300}", "Running", "", "", "one\ntwo", "0", "0", "3h")
    title, first, second = text_of(table).splitlines()
    assert title.split() == ["job", "phase", "mode", "ready", "reason", "restarts", "epoch", "age"]
    words = ["Failed", "Collective", "0/2", "BackoffLimitExceeded", "0", "0", "3h"]
    assert first.split() == [f"{NAMESPACE}/{NAME}", *words]
    assert second.split() == [f"a/{'x' * 300}", "Running", "one;", "two", "0", "0", "3h"]
    assert title.index("phase") == first.index("Failed") == second.index("Running")
    assert not re.search(r"[│┃━┏]|\x1b", text_of(table))


@pytest.mark.parametrize(("state", "colour"), [("Failed", "31"), ("Running", "32"), ("Pending", None)])
def test_a_state_has_a_colour_on_a_terminal(state: str, colour: str | None) -> None:
    for table in (jobs(state), properties("a/b", {"phase": state, "note": "Failed"}, states={"phase"})):
        drawn = on_terminal(table, 140)
        assert (f"\x1b[{colour}m{state}" in drawn) == bool(colour), drawn
    assert "mFailed" not in drawn.partition("note")[2]


TEXT = "train.py:100: [red]x[/red] :smile: [/]"


def test_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(("job", "message"), TEXT, wraps={"message"}, caption=TEXT)
    table.add_row("a/b", TEXT)
    assert on_terminal(table, 140).count(TEXT) == 3
    assert text_of(table, TEXT).count(TEXT) == 4
    program._print_error(TEXT)
    assert capsys.readouterr().err == f"error: {TEXT}\n"


def test_text_does_not_control_the_terminal() -> None:
    table = Table(("job", "message"), "T\x1b[2J", wraps={"message"}, caption="C\x1b[2J")
    table.add_row("a/b", "M\x1b[2J")
    assert "\x1b[2J" not in on_terminal(table, 140)
    assert "\x1b" not in text_of(table)
