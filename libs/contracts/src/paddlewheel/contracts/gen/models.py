"""The pydantic models of all messages, as text."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from paddlewheel.contracts.base import json_name
from paddlewheel.contracts.gen.protos import PACKAGE, Comments, comments_of, module_of, ours

F = FieldDescriptorProto
SCALARS = {
    F.TYPE_BOOL: ("Bool", "False"),
    F.TYPE_BYTES: ("Bytes", 'b""'),
    F.TYPE_DOUBLE: ("Double", "0.0"),
    F.TYPE_INT32: ("Int32", "0"),
    F.TYPE_INT64: ("Int64", "0"),
    F.TYPE_STRING: ("str", '""'),
}


def docstring(text: str, indent: str = "    ") -> Iterator[str]:
    """The comment as a docstring; no lines if there is no comment."""
    if text:
        lines = text.replace("\\", "\\\\").split("\n")
        tail = " " if text.endswith('"') else ""
        yield (
            f'{indent}"""'
            + f"\n{indent}".join(lines)
            + tail
            + ('"""' if len(lines) == 1 else f'\n{indent}"""')
        )


def type_of(field: FieldDescriptorProto, maps: dict[str, DescriptorProto]) -> tuple[str, str]:
    """Python type and default of one field."""
    if field.type_name in maps:
        key, value = maps[field.type_name].field
        if key.type != F.TYPE_STRING:
            raise SystemExit(f"{field.name}: map keys must be strings")
        return f"dict[str, {single_type(value)[0]}]", "{}"
    single, default = single_type(field)
    if field.label == F.LABEL_REPEATED:
        return f"list[{single}]", "[]"
    if field.HasField("oneof_index") or default == "None":
        return f"{single} | None", "None"
    return single, default


def single_type(field: FieldDescriptorProto) -> tuple[str, str]:
    """Type and default of one value of the field."""
    if field.type_name == ".google.protobuf.Timestamp":
        return "Timestamp", "None"
    name = field.type_name.rpartition(".")[2]
    if field.type == F.TYPE_ENUM:
        return name, f"{name}.UNSPECIFIED"
    if field.type == F.TYPE_MESSAGE and not field.type_name.startswith(".google."):
        return name, "None"
    if field.type not in SCALARS:
        raise SystemExit(f"{field.name}: the generator knows no {F.Type.Name(field.type)} {field.type_name}")
    return SCALARS[field.type]


def enum_lines(enum: EnumDescriptorProto, path: tuple[int, ...], comments: Comments) -> Iterator[str]:
    """One enum; members lose the enum's own prefix."""
    yield f"\n\nclass {enum.name}(WireEnum):"
    yield from docstring(comments.get(path) or f"{enum.name}.")
    yield ""
    prefix = next(v.name for v in enum.value if v.number == 0).removesuffix("UNSPECIFIED")
    for index, value in enumerate(enum.value):
        yield f'    {value.name.removeprefix(prefix)} = "{value.name}", {value.number}'
        yield from docstring(comments.get((*path, 2, index), ""))


def message_lines(
    package: str, message: DescriptorProto, path: tuple[int, ...], comments: Comments
) -> Iterator[str]:
    """One message with its fields in order."""
    full = f"{package}.{message.name}"
    if message.enum_type or any(not n.options.map_entry for n in message.nested_type):
        raise SystemExit(f"{full}: declare nested messages and enums at the top level")
    maps = {f".{full}.{n.name}": n for n in message.nested_type}
    yield f"\n\nclass {message.name}(WireModel):"
    yield from docstring(comments.get(path) or f"{message.name}.")
    yield f'\n    proto_name: ClassVar[str] = "{full}"'
    if groups := oneofs_of(message):
        yield f"    oneofs: ClassVar[dict[str, tuple[str, ...]]] = {groups!r}"
    yield ""
    for index, field in enumerate(message.field):
        if field.json_name != json_name(field.name):
            raise SystemExit(f"{full}.{field.name}: own JSON names are not supported")
        yield "    {}: {} = {}".format(field.name, *type_of(field, maps))
        yield from docstring(comments.get((*path, 2, index), ""))


def oneofs_of(message: DescriptorProto) -> dict[str, tuple[str, ...]]:
    """Names of the members of each real oneof."""
    groups: dict[str, tuple[str, ...]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            name = message.oneof_decl[field.oneof_index].name
            groups[name] = (*groups.get(name, ()), field.name)
    return groups


def module_text(file: FileDescriptorProto, names: dict[str, str]) -> str:
    """The whole module of one proto file."""
    comments = comments_of(file)
    body = [line for i, e in enumerate(file.enum_type) for line in enum_lines(e, (5, i), comments)]
    for i, message in enumerate(file.message_type):
        body += message_lines(file.package, message, (4, i), comments)
    text = "\n".join(body)
    used = {f.type_name for m in file.message_type for f in m.field} & names.keys()
    outside = sorted((names[u], u.rpartition(".")[2]) for u in used if names[u] != module_of(file.package))
    head = [f"# Generated from protos/{file.name} by `make gen`; do not edit."]
    head += docstring(comments.get((2,), "") or f"Messages of {file.package}.", "")
    head += ["", "from __future__ import annotations", "", "from typing import ClassVar", ""]
    base = sorted({"WireModel", *(["WireEnum"] if file.enum_type else []), *scalars_in(file)})
    head += [f"from paddlewheel.contracts.base import {', '.join(base)}"]
    head += [f"from {PACKAGE}.{module} import {name}" for module, name in outside]
    return "\n".join(head) + "\n" + text + "\n"


def scalars_in(file: FileDescriptorProto) -> set[str]:
    """Names of base.py's scalar types that the file needs."""
    nested = [n for m in file.message_type for n in m.nested_type]
    fields = [f for m in (*file.message_type, *nested) for f in m.field]
    times = {"Timestamp" for f in fields if f.type_name == ".google.protobuf.Timestamp"}
    return times | {SCALARS[f.type][0] for f in fields if f.type in SCALARS} - {"str"}


def render(descriptors: FileDescriptorSet) -> dict[str, str]:
    """File name to text, for every proto of this project."""
    files = ours(descriptors)
    names = {
        f".{f.package}.{name}": module_of(f.package)
        for f in files
        for name in (*(m.name for m in f.message_type), *(e.name for e in f.enum_type))
    }
    texts: dict[str, str] = {}
    for file in files:
        name = f"{module_of(file.package)}.py"
        if name in texts:
            raise SystemExit(f"{file.package}: keep it in one file")
        texts[name] = module_text(file, names)
    return texts
