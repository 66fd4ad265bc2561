"""The generated models say what protobuf's own JSON mapping says, field by field, in both directions."""

from __future__ import annotations

import importlib
import math
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, cast

import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from paddlewheel.contracts.base import WireEnum, WireModel
from paddlewheel.contracts.gen.protos import PACKAGE, ROOT, build, module_of
from paddlewheel.contracts.wire import from_json, to_json

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DESCRIPTORS = build(ROOT / "protos")
POOL = descriptor_pool.DescriptorPool()
for _file in DESCRIPTORS.file:
    POOL.Add(_file)

MODELS: dict[str, type[WireModel]] = {
    f"{file.package}.{message.name}": getattr(
        importlib.import_module(f"{PACKAGE}.{module_of(file.package)}"), message.name
    )
    for file in DESCRIPTORS.file
    if file.package.startswith("paddlewheel.")
    for message in file.message_type
}

F = FieldDescriptor
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    F.TYPE_BOOL: st.booleans(),
    F.TYPE_BYTES: st.binary(),
    F.TYPE_DOUBLE: st.floats().map(lambda x: x + 0.0),
    F.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    F.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    F.TYPE_STRING: st.text(max_size=8),
}
TIMES = st.datetimes(timezones=st.just(UTC))


@cache
def values_of(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type == F.TYPE_ENUM:
        return st.sampled_from([v.number for v in cast(EnumDescriptor, field.enum_type).values])
    if field.type == F.TYPE_MESSAGE and message_of(field).full_name == "google.protobuf.Timestamp":
        return TIMES
    if field.type == F.TYPE_MESSAGE:
        return messages(message_of(field))
    return SCALARS[field.type]


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor) -> Message:
    """Any message of the type; of each oneof at most one member is set."""
    message = message_factory.GetMessageClass(descriptor)()
    for group in descriptor.oneofs:
        if field := draw(st.sampled_from([None, *group.fields])):
            fill(draw, message, field)
    for field in descriptor.fields:
        if field.containing_oneof is None and draw(st.booleans()):
            fill(draw, message, field)
    return message


def fill(draw: st.DrawFn, message: Message, field: FieldDescriptor) -> None:
    if is_map(field):
        value_field = message_of(field).fields_by_name["value"]
        for key, value in draw(
            st.dictionaries(st.text(max_size=4), values_of(value_field), max_size=3)
        ).items():
            put_map(getattr(message, field.name), key, value)
    elif field.is_repeated:
        getattr(message, field.name).extend(draw(st.lists(values_of(field), max_size=3)))
    elif field.type != F.TYPE_MESSAGE:
        setattr(message, field.name, draw(values_of(field)))
    elif isinstance(value := draw(values_of(field)), datetime):
        getattr(message, field.name).FromDatetime(value)
    else:
        getattr(message, field.name).CopyFrom(value)


def put_map(target: Any, key: str, value: Any) -> None:
    if isinstance(value, Message):
        target[key].CopyFrom(value)
    else:
        target[key] = value


def is_map(field: Any) -> bool:
    return bool(field.type == F.TYPE_MESSAGE and message_of(field).GetOptions().map_entry)


def message_of(field: FieldDescriptor) -> Descriptor:
    return cast(Descriptor, field.message_type)


def assert_same(model: WireModel, message: Message) -> None:
    assert set(type(model).model_fields) == {f.name for f in message.DESCRIPTOR.fields}
    for field in message.DESCRIPTOR.fields:
        ours, theirs = getattr(model, field.name), getattr(message, field.name)
        if is_map(field):
            assert set(ours) == set(theirs)
            for key, value in ours.items():
                assert_value(value, theirs[key])
        elif field.is_repeated:
            assert len(ours) == len(theirs)
            for one, other in zip(ours, theirs, strict=True):
                assert_value(one, other)
        elif field.type == F.TYPE_MESSAGE and not message.HasField(field.name):
            assert ours is None
        else:
            assert_value(ours, theirs)


def assert_value(ours: Any, theirs: Any) -> None:
    if isinstance(ours, WireModel):
        assert_same(ours, theirs)
    elif isinstance(ours, datetime):
        assert ours - EPOCH == timedelta(seconds=theirs.seconds, microseconds=theirs.nanos // 1000)
    elif isinstance(ours, WireEnum):
        assert ours.number == theirs
    elif isinstance(ours, float) and math.isnan(ours):
        assert math.isnan(theirs)
    else:
        assert (type(ours), ours) == (type(theirs), theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
@settings(max_examples=25)
@given(data=st.data())
def test_models_and_protobuf_read_each_other(name: str, data: st.DataObject) -> None:
    message = data.draw(messages(POOL.FindMessageTypeByName(name)))
    model_class = MODELS[name]
    model = from_json(model_class, json_format.MessageToJson(message).encode())
    assert_same(model, message)
    spelled_out = json_format.MessageToJson(
        message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
    )
    assert to_json(from_json(model_class, spelled_out.encode())) == to_json(model)
    back = json_format.Parse(to_json(model).decode(), type(message)())
    assert_same(model, back)
    # What one leaves out, the other leaves out too.
    assert set(json_format.MessageToDict(back)) == set(json_format.MessageToDict(message))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_an_empty_message_is_an_empty_object(name: str) -> None:
    assert MODELS[name].proto_name == name
    assert to_json(MODELS[name]()) == b"{}"
    assert from_json(MODELS[name], b"{}") == MODELS[name]()
