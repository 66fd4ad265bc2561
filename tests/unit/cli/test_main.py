"""The command as a whole: every command is found, and only the one that is used is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from paddlewheel.cli.main import COMMANDS, app


def run(*words: str) -> str:
    return CliRunner().invoke(app, words).output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_page_under_its_own_name(command: str) -> None:
    assert f"Usage: paddlewheel {command} " in run(command, "--help")


def test_a_group_with_one_command_is_still_a_group() -> None:
    assert "build" in run("images", "--help")


def test_a_misspelt_command_is_answered_with_a_similar_one() -> None:
    assert "Did you mean 'events'?" in run("event")


def test_a_command_does_not_pay_for_the_imports_of_the_others() -> None:
    code = (
        "import sys\n"
        "from paddlewheel.cli.main import app\n"
        "app(['cluster', '--help'], standalone_mode=False)\n"
        "print('nats' in sys.modules, 'paddlewheel.cli.cluster' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False True"
