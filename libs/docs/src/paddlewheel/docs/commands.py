"""The reference of the `paddlewheel` command: every command with its arguments and options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer

from paddlewheel.cli.app import LazyGroup, app, load
from paddlewheel.docs.markdown import document, prose, table

# Typer has no public types for what an app is made of.
Command = Any
Parameter = Any

_TYPES = {"str": "text", "int": "integer", "float": "number"}
_BUILT_IN = ("help", "install_completion", "show_completion")
_EXAMPLE = re.compile(r"^\[cyan\](.*?)\[/cyan\] {2}(.*)$", re.DOTALL)


def page() -> str:
    """The whole page."""
    root: Command = typer.main.get_command(app)
    commands = list(_children("paddlewheel", root))
    lines = [*_paragraphs(root.help), *_overview(commands)]
    for name, command in commands:
        lines += _section("##", name, command)
        lines += [line for leaf in _children(name, command) for line in _section("###", *leaf)]
    return document("Commands", lines)


def _children(name: str, command: Command) -> Iterator[tuple[str, Command]]:
    if hasattr(command, "list_commands"):
        for child in command.list_commands(None):
            found = load(child) if isinstance(command, LazyGroup) else command.get_command(None, child)
            if not found.hidden:
                yield f"{name} {child}", found


def _overview(commands: list[tuple[str, Command]]) -> Iterator[str]:
    leaves = [leaf for command in commands for leaf in (list(_children(*command)) or [command])]
    rows = [(f"[`{name}`](#{name.replace(' ', '-')})", _summary(command)) for name, command in leaves]
    yield from table(("command", "purpose"), rows)
    yield (
        "`paddlewheel COMMAND --help` prints the same as the command's section here. An option with a"
        " variable uses that environment variable unless it is given.\n"
    )


def _section(level: str, name: str, command: Command) -> Iterator[str]:
    yield f"{level} {name}\n"
    yield from _paragraphs(command.help or "")
    if not hasattr(command, "list_commands"):
        yield from _usage(name, command)


def _usage(name: str, command: Command) -> Iterator[str]:
    params = [param for param in command.params if param.name not in _BUILT_IN and not param.hidden]
    arguments = [param for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param.param_type_name == "option"]
    words = [name, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)]
    yield f"```text\n{' '.join(words)}\n```\n"
    if any(argument.help for argument in arguments):
        yield from table(("argument", "description"), [(f"`{_argument(a)}`", _about(a)) for a in arguments])
    if options:
        rows = [(_names(option), _value(option), _default(option), _about(option)) for option in options]
        yield from table(("option", "value", "default", "description"), rows)


def _argument(param: Parameter) -> str:
    name = param.metavar or f"{param.name.upper()}{'' if param.nargs == 1 else '...'}"
    return str(name if param.required else f"[{name}]")


def _names(option: Parameter) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _value(option: Parameter) -> str:
    if option.is_flag:
        return ""
    # <str>, <text|json>, <list[str]>, <int range>
    kind = (
        option.display_type(None).strip("<>").removeprefix("list[").removesuffix("]").removesuffix(" range")
    )
    text = " or ".join(f"`{word}`" for word in kind.split("|")) if "|" in kind else _TYPES.get(kind, kind)
    return ", ".join((text, *_bounds(option), *(["repeatable"] if option.multiple else [])))


def _bounds(option: Parameter) -> Iterator[str]:
    if option.min is not None:
        yield f"at least {option.min}" if option.max is None else f"{option.min} to {option.max}"


def _default(option: Parameter) -> str:
    default = option.default
    if option.is_flag:
        return f"`{option.opts[0]}`" if default else ""
    is_empty = default is None or default in ("", [], ()) or callable(default)
    return "" if is_empty else f"`{default.value if isinstance(default, Enum) else default}`"


def _about(param: Parameter) -> str:
    required = "Required." if param.required and param.param_type_name == "option" else ""
    variable = f"Variable: `{param.envvar}`." if getattr(param, "envvar", None) else ""
    return " ".join(filter(None, (_marked(param.help or ""), required, variable)))


def _summary(command: Command) -> str:
    return _marked(str(command.help or "").partition("\n\n")[0])


def _paragraphs(text: str) -> Iterator[str]:
    """The help as Markdown: examples as a list, indented lines as they are."""
    for paragraph in text.split("\n\n"):
        if example := _EXAMPLE.match(paragraph):
            yield f"- `{example[1]}`: {_marked(example[2])}"
        elif paragraph.startswith("    "):
            yield f"```text\n{paragraph.strip()}\n```\n"
        else:
            yield f"\n{_marked(paragraph)}\n"
    yield ""


def _marked(text: str) -> str:
    """Rich's markup as Markdown."""
    marked = prose(text.replace("[cyan]", "`").replace("[/cyan]", "`"))
    return marked.replace("[bold]", "**").replace("[/bold]", "**")
