"""The generator refuses what it would get wrong, naming the field."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from paddlewheel.contracts import gen

F = FieldDescriptorProto


def make_file(*fields: F, nested: DescriptorProto | None = None) -> FileDescriptorProto:
    message = DescriptorProto(name="Thing", field=fields, nested_type=[nested] if nested else [])
    return FileDescriptorProto(name="t.proto", package="paddlewheel.tests.v1", message_type=[message])


def make_field(name: str, type_: F.Type.ValueType, **more: object) -> F:
    return F(name=name, type=type_, json_name=name, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        (make_file(make_field("ratio", F.TYPE_FLOAT)), "ratio: the generator knows no TYPE_FLOAT"),
        (
            make_file(make_field("wait", F.TYPE_MESSAGE, type_name=".google.protobuf.Duration")),
            "wait: the generator knows no TYPE_MESSAGE",
        ),
        (make_file(F(name="some_id", type=F.TYPE_STRING, json_name="ID")), "some_id: own JSON names"),
        (make_file(nested=DescriptorProto(name="Inner")), "declare nested messages"),
    ],
)
def test_unsupported_protos_are_refused(file: FileDescriptorProto, complaint: str) -> None:
    with pytest.raises(SystemExit, match=complaint):
        gen.module_text(file, {})


def test_comments_become_docstrings_that_survive_quotes() -> None:
    file = make_file(make_field("name", F.TYPE_STRING))
    location = file.source_code_info.location.add(leading_comments=' Ends in a "quote"\n')
    location.path.extend([4, 0, 2, 0])
    text = gen.module_text(file, {})
    compile(text, "generated", "exec")
    assert 'Ends in a "quote" """' in text
