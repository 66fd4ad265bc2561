"""The facts, commands and types of all contexts, read from the protos.

The documents are rendered from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from paddlewheel.contracts.gen.protos import Comments, Options, comments_of, ours
from paddlewheel.contracts.generated.registry import EVENTS
from paddlewheel.contracts.subjects import EventSubject, event_subject, parse_event_subject

F = FieldDescriptorProto
_TIMESTAMP = ".google.protobuf.Timestamp"


@dataclass(frozen=True)
class Value:
    """The type of a value: a scalar by its proto name, a timestamp, or another shape by its full name."""

    scalar: str = ""
    shape: str = ""


@dataclass(frozen=True)
class Field:
    """A field. `many` is "" for a single value, "list", or "map" (of strings to values)."""

    name: str
    json: str
    value: Value
    many: str
    about: str


@dataclass(frozen=True)
class Shape:
    """A message (`fields`) or an enum (`words`: value to comment)."""

    full_name: str
    about: str
    fields: tuple[Field, ...] = ()
    words: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The name without its package."""
        return self.full_name.rpartition(".")[2]


@dataclass(frozen=True)
class Fact:
    """A type of fact. `lossy` is its rate limit; "" = it is published until the stream has stored it."""

    shape: Shape
    place: EventSubject
    publisher: str
    stream: str
    terminal: bool
    lossy: str

    @property
    def key(self) -> str:
        """The name of its channel, e.g. `jobs.job.running`."""
        return f"{self.place.context}.{self.place.entity}.{self.place.fact}"

    @property
    def address(self) -> str:
        """The subject with its parameters in braces."""
        return str(self.place).replace(".NAMESPACE.UID", ".{namespace}.{uid}")


@dataclass(frozen=True)
class Command:
    """A type of command. `reply` is the shape of its answer; None if it has none."""

    shape: Shape
    address: str
    sender: str
    receivers: tuple[str, ...]
    reply: Shape | None

    @property
    def key(self) -> str:
        """The name of its channel, e.g. `cache.RunSpec`."""
        return f"{self.shape.full_name.split('.')[1]}.{self.shape.name}"


@dataclass(frozen=True)
class Context:
    """A proto package."""

    name: str
    about: str
    facts: tuple[Fact, ...]
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Catalog:
    """All contexts, and all shapes by full name."""

    contexts: tuple[Context, ...]
    shapes: Mapping[str, Shape]

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(fact for context in self.contexts for fact in context.facts)

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(command for context in self.contexts for command in context.commands)

    def used_by(self, shape: Shape) -> Iterator[Shape]:
        """The shapes of a shape's fields and of their fields, each one once, the nearest first."""
        found: dict[str, Shape] = {}
        waiting = [shape]
        while waiting:
            for field in waiting.pop(0).fields:
                inner = field.value.shape
                if inner and inner not in found:
                    found[inner] = self.shapes[inner]
                    waiting.append(self.shapes[inner])
        yield from found.values()


def read(descriptors: FileDescriptorSet) -> Catalog:
    """The catalog of all protos. Contexts without facts and commands are left out."""
    files = ours(descriptors)
    shapes = {shape.full_name: shape for file in files for shape in _shapes(file)}
    options = Options(descriptors)
    contexts = (_context(file, shapes, options) for file in files)
    return Catalog(tuple(c for c in contexts if c.facts or c.commands), shapes)


def _context(file: FileDescriptorProto, shapes: Mapping[str, Shape], options: Options) -> Context:
    context = options.of(file.options)
    facts, commands = [], []
    for message in file.message_type:
        shape, traits = shapes[f"{file.package}.{message.name}"], options.of(message.options)
        if shape.full_name in EVENTS:
            facts.append(_fact(shape, context, traits))
        if "address" in traits:
            reply = shapes[f"{file.package}.{traits['reply']}"] if "reply" in traits else None
            receivers = tuple(traits["receivers"])
            commands.append(Command(shape, traits["address"], traits["sender"], receivers, reply))
    about = comments_of(file).get((2,), "")
    return Context(file.package.split(".")[1], about, tuple(facts), tuple(commands))


def _fact(shape: Shape, file: Mapping[str, Any], message: Mapping[str, Any]) -> Fact:
    place = parse_event_subject(event_subject(shape.full_name, "NAMESPACE", "UID"))
    return Fact(
        shape,
        place,
        publisher=file["publisher"],
        stream=file["stream"],
        terminal=message.get("terminal", False),
        lossy=message.get("lossy", ""),
    )


def _shapes(file: FileDescriptorProto) -> Iterator[Shape]:
    comments = comments_of(file)
    for index, enum in enumerate(file.enum_type):
        yield _enum(file.package, enum, (5, index), comments)
    for index, message in enumerate(file.message_type):
        yield _message(file.package, message, (4, index), comments)


def _enum(package: str, enum: EnumDescriptorProto, path: tuple[int, ...], comments: Comments) -> Shape:
    words = tuple((v.name, comments.get((*path, 2, i), "")) for i, v in enumerate(enum.value))
    return Shape(f"{package}.{enum.name}", comments.get(path, ""), words=words)


def _message(package: str, message: DescriptorProto, path: tuple[int, ...], comments: Comments) -> Shape:
    full_name = f"{package}.{message.name}"
    maps = {f".{full_name}.{n.name}": n.field[1] for n in message.nested_type}
    fields = tuple(
        _field(field, maps, comments.get((*path, 2, index), "")) for index, field in enumerate(message.field)
    )
    return Shape(full_name, comments.get(path, ""), fields)


def _field(field: F, maps: Mapping[str, F], about: str) -> Field:
    if field.type_name in maps:
        return Field(field.name, field.json_name, _value(maps[field.type_name]), "map", about)
    many = "list" if field.label == F.LABEL_REPEATED else ""
    return Field(field.name, field.json_name, _value(field), many, about)


def _value(field: F) -> Value:
    if field.type_name == _TIMESTAMP:
        return Value(scalar="timestamp")
    if field.type in (F.TYPE_MESSAGE, F.TYPE_ENUM):
        return Value(shape=field.type_name.removeprefix("."))
    return Value(scalar=F.Type.Name(field.type).removeprefix("TYPE_").lower())
