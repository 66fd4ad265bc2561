"""Renders the reference in `docs/events.md`, below the marker. The text above it is written by hand."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from paddlewheel.contracts.gen.catalog import Catalog, Command, Context, Fact, Field, Shape
from paddlewheel.contracts.gen.examples import body
from paddlewheel.contracts.gen.schemas import prose

MARKER = "<!-- From here on generated from protos/ by `make gen`; do not edit below. -->"
_SCALARS = {
    "int64": "int64, a string in JSON",
    "timestamp": "time, RFC 3339",
    "bytes": "bytes, base64 in JSON",
}


def with_reference(text: str, catalog: Catalog) -> str:
    """The page with a new reference.

    Raises:
        SystemExit: the page has lost its marker.
    """
    head, found, _ = text.partition(MARKER)
    if not found:
        raise SystemExit(f"docs/events.md: put this line where the reference begins: {MARKER}")
    return f"{head}{MARKER}\n\n" + "\n".join(_reference(catalog)).rstrip() + "\n"


def _reference(catalog: Catalog) -> Iterator[str]:
    yield "## Reference\n"
    yield "A field that is absent has its default (0, false, empty). Types are those of proto3 JSON.\n"
    yield f"Contexts: {', '.join(f'[{c.name}](#{c.name})' for c in catalog.contexts)}.\n"
    done: set[str] = set()
    for context in catalog.contexts:
        yield f"## {context.name}\n"
        yield f"{_markdown(context.about)}\n"
        yield from _facts(catalog, context)
        yield from _commands(catalog, context)
        yield from _shapes(catalog, context, done)


def _facts(catalog: Catalog, context: Context) -> Iterator[str]:
    if not context.facts:
        return
    yield f"Published by {context.facts[0].publisher}, stored in stream `{context.facts[0].stream}`.\n"
    yield "| fact | subject | what is true | kind |\n|---|---|---|---|"
    for fact in context.facts:
        link = f"[{fact.shape.name}](#{fact.shape.name.lower()})"
        yield f"| {link} | `{fact.address}` | {_cell(fact.shape.about)} | {_kind(fact)} |"
    yield ""
    for fact in context.facts:
        yield f"### {fact.shape.name}\n"
        yield from _message(catalog, fact.shape)


def _commands(catalog: Catalog, context: Context) -> Iterator[str]:
    for command in context.commands:
        yield f"### {command.shape.name} (command)\n"
        yield f"`{command.address}`, {_route(command)}. {_markdown(command.shape.about)}\n"
        yield from _message(catalog, command.shape)
        if command.reply:
            yield f"### {command.reply.name} (reply)\n"
            yield f"{_markdown(command.reply.about)}\n"
            yield from _message(catalog, command.reply)


def _route(command: Command) -> str:
    return f"from {command.sender} to {', '.join(command.receivers)}"


def _shapes(catalog: Catalog, context: Context, done: set[str]) -> Iterator[str]:
    """The parts of the messages above. Each shape appears once on the page."""
    roots = [*(f.shape for f in context.facts), *(c.shape for c in context.commands)]
    roots += [c.reply for c in context.commands if c.reply]
    for shape in (s for root in roots for s in catalog.used_by(root)):
        if shape.full_name in done:
            continue
        done.add(shape.full_name)
        yield f"### {shape.name} (part)\n"
        yield f"{_markdown(shape.about)}\n"
        yield from _words(shape) if shape.words else _fields(shape)
        yield ""


def _message(catalog: Catalog, shape: Shape) -> Iterator[str]:
    yield from _fields(shape)
    example = orjson.dumps(body(catalog, shape), option=orjson.OPT_INDENT_2).decode()
    yield f"\n```json\n{example}\n```\n"


def _fields(shape: Shape) -> Iterator[str]:
    if not shape.fields:
        yield "No fields."
        return
    yield "| field | type | what |\n|---|---|---|"
    for field in shape.fields:
        yield f"| `{field.json}` | {_type(field)} | {_cell(field.about)} |"


def _words(shape: Shape) -> Iterator[str]:
    yield "| word | what |\n|---|---|"
    for word, about in shape.words:
        yield f"| `{word}` | {_cell(about)} |"


def _type(field: Field) -> str:
    value = field.value
    inner = _SCALARS.get(value.scalar, value.scalar) if value.scalar else value.shape.rpartition(".")[2]
    return {"list": f"list of {inner}", "map": f"object: string to {inner}"}.get(field.many, inner)


def _kind(fact: Fact) -> str:
    if fact.lossy:
        return f"lossy: {_cell(fact.lossy)}"
    return "terminal" if fact.terminal else ""


def _cell(text: str) -> str:
    return _markdown(text).replace("\n\n", " ").replace("|", "\\|")


def _markdown(text: str) -> str:
    """A comment as Markdown: `<namespace>` is not a tag; text in backquotes needs no escaping."""
    parts = prose(text).split("`")
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))
