"""The command as a whole: every command is found, and only the one that is used is imported."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import Result

from paddlewheel.cli.app import load
from paddlewheel.cli.main import COMMANDS

Command = Callable[..., Result]

WITHOUT_JSON = {"cluster down", "cluster kubeconfig", "dev logs", "dev down"}
"""They print a line, a path or a log as it is, and no table."""


def commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """Every command that does something, with its full name."""
    for name in COMMANDS:
        loaded = load(name)
        below = loaded.commands.items() if isinstance(loaded, TyperGroup) else [("", loaded)]
        yield from ((f"{name} {part}".strip(), command) for part, command in below)  # type: ignore[misc]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_page_under_its_own_name_that_teaches_by_examples(
    paddlewheel: Command, command: str
) -> None:
    shown = paddlewheel(command, "--help")
    assert shown.exit_code == 0
    assert f"Usage: paddlewheel {command} " in shown.output
    assert f"paddlewheel {command}" in shown.stdout.partition("Examples")[2]


@pytest.mark.parametrize("command", [name for name, _ in commands()])
def test_every_command_of_a_group_has_a_help_page(paddlewheel: Command, command: str) -> None:
    shown = paddlewheel(*command.split(), "--help")
    assert shown.exit_code == 0
    assert f"Usage: paddlewheel {command} " in shown.output


def test_the_help_of_the_whole_teaches_by_examples(paddlewheel: Command) -> None:
    assert "paddlewheel demo" in paddlewheel("--help").stdout.partition("Examples")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_of_commands_has_the_first_line_of_each_ones_own_help(
    paddlewheel: Command, command: str
) -> None:
    summary = COMMANDS[command][0]
    assert (load(command).help or "").splitlines()[0] == summary
    assert summary in paddlewheel("--help").stdout


def test_a_group_with_one_command_is_still_a_group(paddlewheel: Command) -> None:
    assert "build" in paddlewheel("images", "--help").output


def test_a_misspelt_command_is_answered_with_a_similar_one(paddlewheel: Command) -> None:
    assert "Did you mean 'events'?" in paddlewheel("event").output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("events", "--no-such"), "No such option: --no-such"),
        (("job", "scale", "x"), "Missing option '--workers'."),
        (("--output", "json", "events"), "Invalid value for --output: write it after the command"),
    ],
)
def test_an_error_about_options_is_one_line_where_no_terminal_is(
    paddlewheel: Command, arguments: tuple[str, ...], problem: str
) -> None:
    refused = paddlewheel(*arguments)
    assert (refused.exit_code, refused.stdout, refused.stderr) == (2, "", f"error: {problem}\n")


@pytest.mark.parametrize("command", ["events", "logs", "job explain", "uninstall"])
def test_a_cluster_is_not_chosen_by_the_name_of_something_else(paddlewheel: Command, command: str) -> None:
    refused = paddlewheel(*command.split(), "--name", "demo")
    assert (refused.exit_code, "No such option: --name" in refused.stderr) == (2, True)


def test_a_group_without_a_command_prints_its_help(paddlewheel: Command) -> None:
    shown = paddlewheel("job")
    assert (shown.exit_code, "Examples" in shown.stdout, shown.stderr) == (2, True, "")


@pytest.mark.parametrize(
    ("arguments", "own"),
    [(["--help"], "None"), (["--version"], "None"), (["cluster", "--help"], "paddlewheel.cli.cluster")],
)
def test_a_command_does_not_pay_for_the_imports_of_the_others(arguments: list[str], own: str) -> None:
    code = (
        "import sys\n"
        "from paddlewheel.cli.app import app\n"
        f"app({arguments}, standalone_mode=False)\n"
        "costly = {'nats', 'kubernetes', 'structlog', 'paddlewheel.sdk', 'paddlewheel.cli.events'}\n"
        f"print(costly & set(sys.modules), {own!r} in ['None', *sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set() True"


def test_the_version_is_that_of_the_command_and_of_its_python(paddlewheel: Command) -> None:
    own, python = version("paddlewheel-cli"), platform.python_version()
    assert paddlewheel("--version").stdout == f"paddlewheel {own}, python {python}\n"
    shown = paddlewheel("--version", "-o", "json")
    assert (shown.exit_code, json.loads(shown.stdout)) == (0, {"paddlewheel": own, "python": python})


@pytest.mark.parametrize("arguments", [("-o", "json"), ("-o", "json", "cluster", "list")])
def test_an_output_format_before_the_command_is_refused(
    paddlewheel: Command, arguments: tuple[str, ...]
) -> None:
    refused = paddlewheel(*arguments)
    assert refused.exit_code == 2
    assert "write it after the command" in refused.stderr


WITHOUT_CLUSTER = {"cluster", "dev", "images", "doctor", "demo"}
"""Commands with a cluster of their own, or none."""
CLUSTER_OPTIONS = {
    "--namespace": "namespace",
    "-n": "namespace",
    "--all-namespaces": "all_namespaces",
    "-A": "all_namespaces",
    "--context": "context",
    "--kubeconfig": "kubeconfig",
    "--cluster": "cluster",
}
WITHOUT_NAMESPACE = {"dlq", "uninstall", "bus status", "bus install", "bus rebuild"}
"""They work on the whole installation."""


def test_the_options_for_cluster_and_namespace_are_the_same_everywhere() -> None:
    found = {name: {o: param.name for param in c.params for o in param.opts} for name, c in commands()}
    for name, options in found.items():
        for option in ("-n", "-A", "--namespace", "--all-namespaces"):
            assert options.get(option) in (None, CLUSTER_OPTIONS[option]), f"{name} {option}"
        group = name.split()[0]
        if group in WITHOUT_CLUSTER:
            continue
        is_cluster_wide = not WITHOUT_NAMESPACE.isdisjoint((group, name))
        lists = name == "events" or (name.endswith(" list") and not is_cluster_wide)
        left_out = {"namespace" if is_cluster_wide else "", "" if lists else "all_namespaces"}
        wanted = {option: param for option, param in CLUSTER_OPTIONS.items() if param not in left_out}
        assert {o: param for o, param in options.items() if o in CLUSTER_OPTIONS} == wanted, name


def test_every_command_has_json_beside_its_table_and_refuses_other_formats(paddlewheel: Command) -> None:
    formats = {
        name: {option for param in command.params for option in param.opts if param.name == "output"}
        for name, command in commands()
    }
    assert {name for name, options in formats.items() if not options} == WITHOUT_JSON
    for name in formats.keys() - WITHOUT_JSON:
        refused = paddlewheel(*name.split(), "-o", "yaml")
        assert refused.exit_code == 2, name
        assert "json" in refused.stderr, name
