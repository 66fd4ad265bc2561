"""The command as a whole: every command is found, and only the one that is used is imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import Result

from paddlewheel.cli.main import COMMANDS

Command = Callable[..., Result]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_page_under_its_own_name(paddlewheel: Command, command: str) -> None:
    assert f"Usage: paddlewheel {command} " in paddlewheel(command, "--help").output


def test_a_group_with_one_command_is_still_a_group(paddlewheel: Command) -> None:
    assert "build" in paddlewheel("images", "--help").output


def test_a_misspelt_command_is_answered_with_a_similar_one(paddlewheel: Command) -> None:
    assert "Did you mean 'events'?" in paddlewheel("event").output


def test_a_command_does_not_pay_for_the_imports_of_the_others() -> None:
    code = (
        "import sys\n"
        "from paddlewheel.cli.main import app\n"
        "app(['cluster', '--help'], standalone_mode=False)\n"
        "print('nats' in sys.modules, 'paddlewheel.cli.cluster' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False True"
