"""What `paddlewheel dlq` refuses before it touches the bus."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result

Command = Callable[..., Result]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay"], "give sequence numbers as `dlq list` shows them, or [--durable NAME] --all"),
        (["drop", "--durable", "x"], "add --all for all of x"),
        (["replay", "3", "--all"], "not both"),
        (["drop", "3", "--durable", "x"], "not both"),
        (["list", "-o", "yaml"], "json"),
    ],
)
def test_it_says_what_to_give(paddlewheel: Command, arguments: list[str], said: str) -> None:
    ended = paddlewheel("dlq", *arguments)
    assert ended.exit_code == 2
    assert said in ended.stderr


def test_rebuild_knows_who_rebuilds(paddlewheel: Command) -> None:
    ended = paddlewheel("bus", "rebuild", "--service", "scheduler")
    assert ended.exit_code == 2
    assert "choose one of job-controller, dataset-controller" in ended.stderr


def test_replay_refuses_a_name_that_no_job_can_have(paddlewheel: Command) -> None:
    ended = paddlewheel("bus", "replay", "--job", "a/b/c")
    assert ended.exit_code == 2
    assert '"namespace/name"' in ended.stderr
